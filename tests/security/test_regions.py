"""With balance on, a PD may say anything about its regions: what is kept of it has bounds, and PD then balances itself."""

import msgspec
import pytest

from mooring.capabilities.balance import BalancePolicy
from mooring.capabilities.balance.book import GIVEN_WAY_S, RANGE, RegionBooks
from mooring.capabilities.balance.capability import PAUSE, Balance
from mooring.capabilities.balance.pause import PD_SCHEDULERS
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.clients.pd.regions import regions_of_range
from mooring.clients.ports import UnansweredError
from mooring.core.engine.recording.memory import MemorySnapshot
from mooring.core.engine.recording.remembering import read
from mooring.core.model.cluster import Key
from mooring.core.model.events import Listed, PdSeen, RegionsSeen
from mooring.core.model.instructions import PausePdScheduler, ReadRegions
from mooring.core.model.kinds import Kind
from mooring.core.model.placement import Placement, PlacementRule
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdPause, PdView, Peer, Region, Store, TidbCluster
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World
from mooring.process.settings.config import Config
from mooring_lab.cluster.pd.driver import SandboxPd
from mooring_lab.stage.rig import Rig
from tests.sim.scenarios.restart import RestartScenario

EVIL, GOOD = Key("evil", "demo"), Key("good", "demo")
MOST = 10 * RANGE
PAUSED = tuple(sorted(PD_SCHEDULERS.values()))


class House:
    """A deciding process with two clusters; the good one has as many regions as its share."""

    def __init__(self):
        self.world, self.queue = World(), Queue(live_settings())
        clusters = tuple(TidbCluster(key.namespace, key.name, f"u-{key}", "1") for key in (EVIL, GOOD))
        self.world.apply(Listed(Kind.TIDB_CLUSTER, clusters))
        self.balance = Balance(BalancePolicy(most_regions=MOST, clusters=("*",)))
        (self.books,) = self.balance.indexes()
        self.world.register(self.books)
        self.notes = {}
        for cluster in (EVIL, GOOD):
            self.look(cluster, 1.0)
        self.evaluate(GOOD, 1.5)
        for start in range(0, MOST // 2, RANGE):
            end = "" if start + RANGE >= MOST // 2 else key(start + RANGE)
            self.books.observe(RegionsSeen(GOOD, page(start), 2.0, (), key(start) if start else "", end), self.world)
        self.good = len(self.books.of(GOOD).summary.regions)

    def look(self, cluster, at, count=100):
        stores = tuple(Store(s, f"s{s}:1", last_heartbeat_at=at) for s in (1, 2, 3))
        pauses = tuple(PdPause(name, 60, 60.0) for name in PAUSED)
        view = PdView(stores, (), count, 7, schedulers=PAUSED, pauses=pauses, placement=Placement((PlacementRule(),)))
        self.world.note_pd(cluster, view, at)
        self.world.show(PdSeen(cluster, view, at))

    def evaluate(self, cluster, at, prefix=""):
        what = f"{prefix}{cluster}"
        answer = self.balance.evaluate(what, self.world, self.queue, self.notes.get(what), at)
        self.notes[what] = answer.notes
        return answer


def key(number):
    return f"{number:012X}"


def page(start, count=RANGE, **how):
    told = {"peers": tuple(Peer(0, s) for s in (1, 2, 3)), "leader_store": 1, "size_mib": 96} | how
    return tuple(Region(number + 1, key(number), key(number + 1), **told) for number in range(start, start + count))


@pytest.fixture
def house():
    return House()


def invents(pages):
    """Ever new regions; one answer is as long as was asked for."""
    for number in range(pages):
        start = number * RANGE
        yield page(start), key(start) if start else "", key(start + RANGE)


def outside_the_range(pages):
    """Ever new regions that all lie before the key that was asked for, so that none of them is ever looked for again."""
    for number in range(pages):
        yield page(number * RANGE), key(10**9 + number) if number else "", key(10**9 + number + 1)


def the_same_again(pages):
    """A list that has no end."""
    for number in range(pages):
        yield page(0), key(1) if number else "", key(1)


def long_keys(pages):
    for number in range(pages):
        fat = tuple(msgspec.structs.replace(r, start_key=r.start_key + "0" * 20_000) for r in page(number * 256, 256))
        yield fat, key(number * 256) if number else "", key((number + 1) * 256)


def invented_stores(pages):
    for number in range(pages):
        many = page(number * 16, 16)
        peers = (tuple(Peer(0, 1000 * r.id + s) for s in range(200)) for r in many)
        many = tuple(msgspec.structs.replace(r, peers=p) for r, p in zip(many, peers, strict=True))
        yield many, key(number * 16) if number else "", key((number + 1) * 16)


@pytest.mark.parametrize("lists", [invents, outside_the_range, the_same_again, long_keys, invented_stores])
def test_regions_without_end_take_no_more_than_their_room(house, lists):
    """All books together keep to `most-regions`, in number and in bytes; who has no more than its share keeps all."""
    for number, (regions, start, end) in enumerate(lists(40)):
        house.books.observe(RegionsSeen(EVIL, regions, 10.0 + number, (), start, end), house.world)
        assert sum(house.books.of(cluster).room for cluster in (EVIL, GOOD)) <= MOST
    assert house.books.has_given_way(EVIL, 60.0) and not house.books.has_given_way(GOOD, 60.0)
    assert house.books.of(EVIL).summary.regions == {}
    assert len(house.books.of(GOOD).summary.regions) == house.good


def test_many_clusters_of_one_namespace_have_one_share(house):
    """A tenant who makes more clusters does not get more room than one who has a large one."""
    tenants = [Key("evil", f"c{number}") for number in range(20)]
    for number, cluster in enumerate(tenants):
        house.books.observe(RegionsSeen(cluster, page(0), 10.0 + number, (), "", ""), house.world)
    assert any(house.books.has_given_way(cluster, 40.0) for cluster in tenants)
    assert not house.books.has_given_way(GOOD, 40.0)


def test_a_cluster_with_too_many_regions_is_blocked_and_left_to_pd(house):
    """`why` says what to do, PD's own schedulers resume at once, no region is read; an hour later it is tried again."""
    house.notes[f"{PAUSE}{EVIL}"] = 9.0
    for regions, start, end in invents(20):
        house.books.observe(RegionsSeen(EVIL, regions, 10.0, (), start, end), house.world)
    answer = house.evaluate(EVIL, 11.0)
    assert (answer.verdict.state, answer.verdict.reason) == (State.BLOCKED, Reason.TOO_MANY_REGIONS)
    assert "most-regions" in answer.verdict.detail and "mooring balance release evil/demo" in answer.verdict.remedy
    assert not answer.proposals and not answer.instructions
    resumed = house.evaluate(EVIL, 11.0, PAUSE).instructions
    assert {(i.name, i.seconds) for i in resumed if isinstance(i, PausePdScheduler)} == {(n, 0) for n in PAUSED}
    assert house.evaluate(EVIL, 12.0, PAUSE).instructions == ()
    assert house.evaluate(GOOD, 11.0).verdict is None
    later = 11.0 + GIVEN_WAY_S
    house.look(EVIL, later)
    (read,) = house.evaluate(EVIL, later).instructions
    assert isinstance(read, ReadRegions) and read.start_key == ""


def test_a_pd_that_counts_more_regions_than_are_kept_is_not_read(house):
    """What cannot be kept need not be read first."""
    house.look(EVIL, 10.0, count=MOST + 1)
    answer = house.evaluate(EVIL, 10.5)
    assert answer.verdict.reason == Reason.TOO_MANY_REGIONS and f"{MOST + 1:,} regions" in answer.verdict.detail
    assert answer.instructions == ()


def in_checkpoint(books):
    return read(MemorySnapshot({"books": books.kept()}, {}).records(), {}, {})["books"]


def test_who_gave_way_is_kept_by_a_checkpoint(house):
    """A replay from a checkpoint decides as the process did."""
    for regions, start, end in invents(20):
        house.books.observe(RegionsSeen(EVIL, regions, 10.0, (), start, end), house.world)
    again = RegionBooks(house.balance.policy)
    again.restore(in_checkpoint(house.books))
    assert again.has_given_way(EVIL, 11.0) and in_checkpoint(again) == in_checkpoint(house.books)
    assert again.of(GOOD).room == house.books.of(GOOD).room


def listed(*ranges):
    return msgspec.json.encode(
        {"regions": [{"id": n, "start_key": start, "end_key": end} for n, (start, end) in enumerate(ranges, 1)]}
    )


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (listed(("", "10"), ("10", "20"), ("20", "")), "3 regions where 2"),
        (listed(("", "20"), ("10", "30")), "one after another"),
        (listed(("", "10"), ("", "10")), "one after another"),
        (listed(("", ""), ("10", "20")), "one after another"),
        (listed(("10", "05")), "one after another"),
        (listed(("10", "zz")), "a region key that is not hex"),
    ],
)
def test_a_range_of_regions_is_as_was_asked_for(body, why):
    """More than were asked for, one upon another or going back: each would make the next read longer than it may be."""
    with pytest.raises(UnansweredError, match=why):
        regions_of_range(body, "", 2)


def test_a_range_goes_on_from_its_key():
    """The region that the key lies in may begin before it; one that ends before it is no answer."""
    assert [r.id for r in regions_of_range(listed(("05", "15"), ("15", "")), "10", 2)] == [1, 2]
    with pytest.raises(UnansweredError):
        regions_of_range(listed(("05", "10")), "10", 2)


def test_a_hand_over_goes_on_beside_a_pd_that_invents_regions(monkeypatch):
    """On the sandbox: the list of regions has no end, and the pod is restarted without its leaders all the same; PD's
    own schedulers are not paused, and `blocked` names what to do."""

    async def endless(driver, start_key="", limit=0):
        number = int(start_key or "0", 16)
        return page(number, limit) if limit else ()

    monkeypatch.setattr(SandboxPd, "regions", endless)
    scenario = RestartScenario(regions=60)
    policy = BalancePolicy(most_regions=5 * RANGE, clusters=("*",))
    config = Config(features={"handoff": True, "balance": True}, policies=(HandoffPolicy(recheck_s=5.0), policy))
    rig = Rig(seed=1, config=config)

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        verdicts = rig.leader().engine.verdicts
        blocked = lambda: any(v.reason == Reason.TOO_MANY_REGIONS for v in verdicts.values() if v is not None)
        await rig.until(blocked, limit_s=60)
        await scenario.act(rig)
        await rig.until(lambda: scenario.done(rig), limit_s=600)
        server = scenario.pd(rig).server
        await rig.until(lambda: not any(map(server.is_paused, PAUSED)), limit_s=60)
        assert blocked() and rig.leader().engine.world.index(RegionBooks).of(Key("tidb", "demo")).room < RANGE

    rig.play(whole)
    assert scenario.end_state(rig) == {"new": ["demo-tikv-0"], "ready": 3, "deleted with leaders": 0}
