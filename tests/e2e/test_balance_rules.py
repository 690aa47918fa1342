"""T12 on a real PD: TiFlash, three placement policies and a full disk; our schedulers balance, PD's checkers rest.

It goes on for fifteen seconds after the first balance; `MOORING_BALANCE_S=3600` makes it an hour. Meanwhile the fullest
stores grow (their regions split) and stores restart, so there is always something to move.
"""

import asyncio
import contextlib
import os
import random
import re
import time
from collections import Counter

import pytest

from mooring.capabilities.balance import Balance, BalancePolicy
from mooring.clients.pd import PdClient
from mooring.clients.ports import ConflictError, PortError
from mooring.core.engine.engine import Engine
from mooring.core.engine.events import Features, LeaseChanged, Tick
from mooring.core.model.cluster import Key
from mooring.core.model.events import Listed, PdLost, PdSeen, RegionsSeen
from mooring.core.model.instructions import (
    AddPdOperator,
    CancelPdOperator,
    Outcome,
    PausePdScheduler,
    ReadPd,
    ReadRegions,
)
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import TidbCluster
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World
from mooring.process.clock import WallClock
from mooring_lab.control.binaries import optional
from mooring_lab.control.processes import Processes
from mooring_lab.control.servers import NO_PD, pd_servers, pd_url
from tests.clients.pd.conftest import free_ports
from tests.e2e.waiting import eventually
from tests.faketikv import FakeTikv
from tests.faketikv.cluster import table_key

#: How long it goes on.
LASTS_S = float(os.environ.get("MOORING_BALANCE_S", "15"))
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800 + LASTS_S)]

DEMO = Key("tidb", "demo")
API = "/pd/api/v1"
ZONES = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c", 7: "a"}
#: Store 7 is nearly out of space; 8 and 9 are TiFlash.
FULL, FLASH = 7, (8, 9)
#: 40 plain regions, 20 with five replicas, 20 that stay out of zone c; TiFlash has a learner of the first fifty.
VOTERS = [(1, 2, 3)] * 40 + [(1, 2, 3, 4, 5)] * 20 + [(1, 2, 4)] * 20
REGIONS = [(voters, (FLASH[0],) if number < 50 else ()) for number, voters in enumerate(VOTERS)]


def rule(id_, first, last, **how):
    key = lambda n: table_key(n).hex() if n else ""
    ranges = {"start_key": key(first), "end_key": "" if last is None else key(last)}
    return {"group_id": "pd", "id": id_, "role": "voter", "count": 3, **ranges, **how}


RULES = [
    rule("default", 0, None, location_labels=["zone"]),
    rule("five", 40, 60, count=5, override=True, index=1),
    rule(
        "zones", 60, None, override=True, index=1, label_constraints=[{"key": "zone", "op": "notIn", "values": ["c"]}]
    ),
    rule(
        "learners",
        0,
        50,
        group_id="tiflash",
        role="learner",
        count=1,
        label_constraints=[{"key": "engine", "op": "in", "values": ["tiflash"]}],
    ),
]


class Loop:
    """The engine with balance alone, on a PD client: what the process does besides is no part of this."""

    def __init__(self, client):
        self.client = client
        self.engine = Engine(
            World(), Queue(live_settings()), [Balance(BalancePolicy(clusters=("*",)))], kinds=(Kind.TIDB_CLUSTER,)
        )
        self.inbox = asyncio.Queue()
        self.asked = []
        #: What was read of the regions: the ids, or none for a range of keys.
        self.read = []

    async def run(self):
        cluster = TidbCluster("tidb", "demo", "u", "1")
        for event in (Features(frozenset({"balance"})), Listed(Kind.TIDB_CLUSTER, (cluster,)), LeaseChanged(True)):
            self.inbox.put_nowait(event)
        async with asyncio.TaskGroup() as tasks:
            while True:
                due = self.engine.next_wakeup()
                event = Tick()
                with contextlib.suppress(TimeoutError):
                    wait = 0.5 if due is None else min(0.5, max(0.0, due - time.time()))
                    event = await asyncio.wait_for(self.inbox.get(), wait + 0.001)
                for instruction in self.engine.handle(event, time.time()):
                    tasks.create_task(self.carry_out(instruction))

    async def carry_out(self, what):
        began, reason, detail = time.time(), None, ""
        try:
            match what:
                case ReadPd():
                    self.inbox.put_nowait(PdSeen(DEMO, await self.client.observe(), began))
                case ReadRegions(region_ids=ids) if ids:
                    self.read.append(ids)
                    found = [r for i in ids if (r := await self.client.region(i)) is not None]
                    self.inbox.put_nowait(RegionsSeen(DEMO, tuple(found), began, ids))
                case ReadRegions(start_key=start, limit=limit):
                    self.read.append(())
                    found = tuple(await self.client.regions(start, limit))
                    end = found[-1].end_key if len(found) >= limit else ""
                    self.inbox.put_nowait(RegionsSeen(DEMO, found, began, (), start, end))
                case PausePdScheduler(name=name, seconds=seconds):
                    await self.client.pause_scheduler(name, seconds)
                case AddPdOperator(body=body):
                    self.asked.append(dict(body))
                    await self.client.add_operator(dict(body))
                case CancelPdOperator(region_id=region):
                    await self.client.cancel_operator(region)
        except ConflictError as error:
            reason, detail = Reason.REGION_BUSY, str(error)
        except PortError as error:
            reason, detail = Reason.PD_UNREACHABLE, str(error)
            if isinstance(what, ReadPd):
                self.inbox.put_nowait(PdLost(DEMO, detail, began))
        looked = isinstance(what, ReadPd | ReadRegions)
        self.inbox.put_nowait(Outcome(instruction=what.id, reason=reason, detail=detail, looked=looked))


@contextlib.asynccontextmanager
async def real_pd(directory):
    program = optional("pd-server")
    if program is None:
        pytest.skip(NO_PD)
    ports = free_ports(2)
    processes, servers = Processes(directory, foreground=True), pd_servers(program, directory, ports)
    url = pd_url(ports[0])
    client = PdClient([url], clock=WallClock())
    tikv = FakeTikv([url], stores=9, regions=REGIONS, transfer_s=0.05, reconnect_s=1.0)
    for store in tikv.stores.values():
        store.labels = {"engine": "tiflash"} if store.id in FLASH else {"zone": ZONES[store.id], "host": str(store.id)}
    tikv.stores[FULL].free = 0.01
    try:
        for server in servers:
            processes.start(server)
        processes.wait_ready(servers)
        await tikv.start()

        def restart():
            for server in servers:
                processes.kill(server.name)
                processes.start(server)

        yield client, tikv, restart
    finally:
        await client.close()
        await tikv.close()
        for server in servers:
            processes.kill(server.name)


async def say(client, path, body):
    """Until PD takes it: it has to be bootstrapped first."""
    said = []

    async def accepted():
        with contextlib.suppress(PortError):
            said.append(await client._transport.ask("POST", API + path, body))
        return said and said[-1].ok

    await eventually(accepted, tell=lambda: said[-1:])


def table_of(region):
    return int(region.start[1:8]) if region.start else 0


def held(tikv, store):
    return sum(store in region.peers for region in tikv.regions.values())


class Growth:
    """Tables grow at their ends, mostly those of one store; every five minutes another store restarts."""

    def __init__(self, tikv):
        self._tikv, self._random, self.splits = tikv, random.Random(7), 0
        #: What else may have had PD repair something: stores that restarted, moments in which this process stood still.
        self.story = []

    def _tell(self, words):
        self.story.append(f"{time.strftime('%H:%M:%S')} {words}")

    async def run(self):
        tikv, began, restarts = self._tikv, time.monotonic(), 0
        while True:
            turn = time.monotonic()
            ends = [r for r in tikv.regions.values() if r.end and len(r.end) == len(table_key(1))]
            busiest = 1 + self.splits // 20 % 6
            region = self._random.choice([r for r in ends if busiest in r.peers] or ends)
            self.splits += 1
            tikv.split(region.id, table_key(table_of(region))[:9] + b"%08d\xff" % self.splits + bytes(8) + b"\xf7")
            if time.monotonic() - began > 300 * (restarts + 1):
                restarts += 1
                self._tell(f"store {1 + restarts % 6} restarts")
                tikv.stop_store(1 + restarts % 6)
                await asyncio.sleep(3)
                tikv.start_store(1 + restarts % 6)
                turn += 3
            await asyncio.sleep(3)
            if time.monotonic() - turn > 5:
                self._tell(f"{time.monotonic() - turn - 3:.1f} s late")


async def taken(client):
    """How many operators PD has begun, by name. What its checkers propose on an old picture it refuses by the epoch."""
    metrics = (await client._transport.ask("GET", "/metrics")).body.decode()
    found = re.findall(r'pd_schedule_operators_count\{event="create",type="([^"]+)"\} (\S+)', metrics)
    return Counter({name: round(float(count)) for name, count in found})


def story_of_checkers(directory, also=()):
    """From PD's own log: each operator that is neither ours nor its balancers', with all that became of its region."""
    logs = sorted(directory.glob("logs/pd*-server.log"))
    said = [m for log in logs for line in log.read_text().splitlines() if (m := _LOGGED.match(line))]
    odd = {m["region"] for m in said if m["what"] == "add operator" and not EXPECTED.search(m["rest"])}
    told = [f"{m['at']} region {m['region']}: {m['what']} {m['rest'][:400]}" for m in said if m["region"] in odd]
    return sorted([*told, *also]) if odd else []


_LOGGED = re.compile(
    r'\[\S+ (?P<at>\S+) \S+\] \[\w+\] \[\S+\] \["(?P<what>[^"]*operator[^"]*)"\] \[region-id=(?P<region>\d+)\] (?P<rest>.*)'
)
#: PD's balancers may begin something before they are paused; the fake TiKV does not split where a keyspace ends.
EXPECTED = re.compile("admin-move-peer|admin-transfer-leader|labeler-split-region|balance-(region|leader)")


async def play(directory):
    async with real_pd(directory) as (client, tikv, restart):
        await say(client, "/config/rules", RULES)
        loop, growth, before = Loop(client), Growth(tikv), await taken(client)
        running = asyncio.ensure_future(loop.run())
        counts = lambda: {store: held(tikv, store) for store in tikv.stores}
        tell = lambda: f"{counts()} {loop.engine.verdicts} {loop.asked[-3:]}"
        even = lambda: max(counts()[s] for s in range(1, 7)) - min(counts()[s] for s in (4, 5)) <= 25
        balanced = lambda: len(loop.asked) > 20 and abs(counts()[8] - counts()[9]) <= 8 and even()
        try:
            await eventually(balanced, tell=tell)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(growth.run(), LASTS_S)
            await eventually(balanced, tell=tell)
            begun, view = await taken(client) - before, await client.observe()
            story = story_of_checkers(directory, growth.story)
            await lose_a_region(tikv, loop, restart, tell)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        print(f"{LASTS_S:.0f} s, {growth.splits} splits, {len(loop.asked)} asked for, begun by PD: {dict(begun)}")
        return tikv, loop, begun, view, story


async def lose_a_region(tikv, loop, restart, tell):
    """PD restarts and nobody tells it of one region again; it goes on until that was asked for six times."""
    lost = next(r.id for r in tikv.regions.values() if r.leader == 3)
    tikv.lost = {lost}
    restart()
    asked = lambda: [number for number, ids in enumerate(loop.read) if lost in ids]
    began = len(loop.read)
    await eventually(lambda: len([n for n in asked() if n >= began]) >= 6, tell=tell)
    first = next(n for n in asked() if n >= began)
    loop.read_with_a_lost_region = loop.read[first:]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    return asyncio.run(play(tmp_path_factory.mktemp("pd")))


def test_pds_own_checkers_find_nothing_to_do(played):
    """T12: while ours balance, PD begins ours, and none of its rule checker's."""
    begun, story = played[2], played[4]
    assert begun["admin-move-peer"] > 10
    assert not [name for name in begun if not EXPECTED.match(name)], "\n".join([str(begun), *story])


def test_every_region_has_the_replicas_that_its_rules_want(played):
    """T12: three, five, three voters, a learner of the first fifty on TiFlash, nothing new on the full disk."""
    tikv = played[0]
    assert held(tikv, FULL) == 0
    for region in tikv.regions.values():
        number = table_of(region)
        voters, learners = REGIONS[number]
        assert sorted(role for _, role in region.peers.values()) == [0] * len(voters) + [1] * len(learners)
        zones = {ZONES[store] for store in region.peers if store in ZONES}
        assert zones == {"a", "b", "c"} if number < 40 else number < 60 or "c" not in zones


def test_one_region_without_a_leader_is_read_alone(played):
    """T12: a lost region is looked for by its id, and the others are read no more often for that."""
    ranges = played[1].read_with_a_lost_region.count(())
    assert ranges <= 2, played[1].read_with_a_lost_region


def test_the_rules_are_read_as_they_were_set(played):
    """T12: placement rules of a real PD."""
    placement = played[3].placement
    assert [(r.group, r.id, r.role, r.count) for r in placement.rules] == [
        ("pd", "default", "voter", 3),
        ("pd", "five", "voter", 5),
        ("pd", "zones", "voter", 3),
        ("tiflash", "learners", "learner", 1),
    ]
    assert placement.rules[2].constraints[0].values == ("c",) and not placement.halted
    assert placement.low_space_ratio == 0.8
