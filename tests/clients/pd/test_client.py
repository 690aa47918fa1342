"""The client on recorded and scripted answers: every shape and every failure a PD is known for."""

import asyncio
import json
from collections import defaultdict
from pathlib import Path

import pytest
from aiohttp import web

from mooring.clients.pd import PdClient
from mooring.clients.pd.answers import bytes_of, operator
from mooring.clients.ports import ConflictError, NotFoundError, RefusedError, ThrottledError, UnansweredError
from mooring.core.model.tidb import PdPause

API = "/pd/api/v1"
LIST = API + "/scheduler-config/evict-leader-scheduler/list"
RECORDED = [
    json.loads(line) for line in (Path(__file__).parent / "recordings" / "pd-8.5.7.jsonl").read_text().splitlines()
]
REDIRECT = (500, '"[PD:apiutil:ErrRedirect]redirect failed"\n')


class Script:
    """Plays answers by method and path: each in turn, the last one again and again. Writes down what it was asked."""

    def __init__(self):
        self.answers = defaultdict(list)
        self.asked = []

    def say(self, method, path, status, said, headers=None):
        self.answers[method, path].append((status, said, headers or {}))
        return self

    async def handle(self, request):
        body = await request.text()
        self.asked.append((request.method, request.path_qs, json.loads(body) if body else None))
        found = self.answers[request.method, request.path_qs]
        if not found:
            return web.Response(status=404, text="404 page not found\n")
        status, said, headers = found.pop(0) if len(found) > 1 else found[0]
        if status == 0:
            request.transport.close()
            return web.Response()
        return web.Response(status=status, text=said, headers=headers)

    def count(self, method, path):
        return sum(a[:2] == (method, path) for a in self.asked)


class QuickClock:
    """Sleeps are written down, not slept; time passes by them alone."""

    def __init__(self):
        self.slept = []

    def now(self):
        return 0.0

    def monotonic(self):
        return sum(self.slept)

    async def sleep(self, seconds):
        self.slept.append(seconds)


@pytest.fixture
async def play():
    """Serve scripts, one endpoint each; a client for them all."""
    runners, clients, clock = [], [], QuickClock()

    async def start(*scripts, **options):
        urls = []
        for script in scripts:
            app = web.Application()
            app.router.add_route("*", "/{any:.*}", script.handle)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            runners.append(runner)
            urls.append(site.name)
        client = PdClient(urls, clock=clock, **options)
        client.clock, client.urls = clock, urls
        clients.append(client)
        return client

    yield start
    for client in clients:
        await client.close()
    for runner in runners:
        await runner.cleanup()


def recorded(skip=0):
    """The recording as a script, from its `skip`-th line on."""
    script = Script()
    for line in RECORDED[skip:]:
        script.say(line["method"], line["path"], line["status"], line["said"])
    return script


def settled(script=None):
    """A PD 8.5 in its daily state."""
    script = script or Script()
    for line in RECORDED[3:15]:
        if (line["method"], line["path"]) not in script.answers:
            script.say(line["method"], line["path"], line["status"], line["said"])
    return script


# ── One look ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_pd_that_has_just_started_is_asked_until_it_can_pause(play):
    """Its schedulers do not wait for us: the pause is asked for again and again until there is one to pause."""
    script = Script().say("GET", API + "/schedulers", 200, "[]")
    path = API + "/schedulers/balance-leader-scheduler"
    for _ in range(3):
        script.say("POST", path, 500, '"[PD:scheduler:ErrSchedulerNotFound]scheduler not found"\n')
    script.say("POST", path, 200, '"Pause or resume the scheduler successfully."\n')
    client = await play(script)
    await client.pause_scheduler("balance-leader-scheduler", 60)
    assert script.count("POST", path) == 4
    assert len(client.clock.slept) == 3 and max(client.clock.slept) <= 0.05


async def test_a_pd_that_adds_its_schedulers_one_by_one_is_asked_for_each(play):
    """One that is missing beside others may be the next to come; after a moment it is one that somebody removed."""
    script = Script().say("GET", API + "/schedulers", 200, '["balance-leader-scheduler"]')
    path = API + "/schedulers/balance-region-scheduler"
    for _ in range(3):
        script.say("POST", path, 500, '"[PD:scheduler:ErrSchedulerNotFound]scheduler not found"\n')
    script.say("POST", path, 200, '"Pause or resume the scheduler successfully."\n')
    client = await play(script)
    await client.pause_scheduler("balance-region-scheduler", 60)
    assert script.count("POST", path) == 4
    gone = API + "/schedulers/balance-hot-region-scheduler"
    script.say("POST", gone, 500, '"[PD:scheduler:ErrSchedulerNotFound]scheduler not found"\n')
    with pytest.raises(NotFoundError):
        await client.pause_scheduler("balance-hot-region-scheduler", 60)
    assert sum(client.clock.slept) < 1.0


PAUSED = API + "/schedulers?status=paused&timestamp=true"


def paused(name, begin, end, date):
    said = [{"name": name, "paused_at": f"2026-11-16T{begin}Z", "resume_at": f"2026-11-16T{end}Z"}]
    return 200, json.dumps(said), {"Date": f"Mon, 16 Nov 2026 {date} GMT"}


async def test_a_look_says_who_is_paused(play):
    """PD's schedulers, and those that stand aside with the time that is left, asked for before its operators are."""
    script = settled(
        Script().say("GET", PAUSED, *paused("balance-leader-scheduler", "12:00:00", "12:01:00", "12:00:18"))
    )
    view = await (await play(script)).observe()
    assert view.pauses == (PdPause("balance-leader-scheduler", 60, 41.0),), "PD's clock, rounded up"
    assert "balance-region-scheduler" in view.schedulers
    order = [path for _, path, _ in script.asked]
    assert order.index(PAUSED) < order.index(API + "/operators")


async def test_a_pd_that_does_not_say_until_when_is_taken_at_our_word(play):
    """Old versions list names only: what we asked for ourselves is remembered, and of others' nothing is known."""
    script = settled(Script().say("GET", PAUSED, 200, '["balance-leader-scheduler", "balance-region-scheduler"]'))
    script.say(
        "POST", API + "/schedulers/balance-leader-scheduler", 200, '"Pause or resume the scheduler successfully."'
    )
    client = await play(script)
    await client.pause_scheduler("balance-leader-scheduler", 60)
    assert (await client.observe()).pauses == (
        PdPause("balance-leader-scheduler", 60, 60.0),
        PdPause("balance-region-scheduler", 0.0, 0.0),
    )


@pytest.mark.parametrize("seconds", [60, 0])
async def test_a_longer_pause_is_neither_shortened_nor_ended(play, seconds):
    """T12: BR and TiDB Lightning pause PD's schedulers for five minutes."""
    path = API + "/schedulers/balance-leader-scheduler"
    script = Script().say("GET", PAUSED, *paused("balance-leader-scheduler", "12:00:00", "12:05:00", "12:00:18"))
    await (await play(script)).pause_scheduler("balance-leader-scheduler", seconds)
    assert script.count("POST", path) == 0


async def test_recorded_pd_in_one_look(play):
    """One look at a recorded PD 8.5.7 has its stores by pod, its leader and start, its operators, and no eviction."""
    script = settled()
    view = await (await play(script)).observe()
    assert [s.pod_name for s in view.stores] == ["demo-tikv-0", "demo-tikv-1", "demo-tikv-2"]
    assert [(s.state, s.leader_count, s.region_count) for s in view.stores] == [("Up", 2, 6)] * 3
    assert view.stores[0].capacity_bytes == 100 << 30 and view.stores[0].available_bytes == 80 << 30
    assert view.stores[0].last_heartbeat_at > view.stores[0].started_at > 1.7e9
    assert (view.region_count, view.evicting, view.leader) == (6, (), "pd1")
    assert view.start_timestamp > 1.7e9
    assert [op.desc for op in view.operators] == ["labeler-split-region"]
    assert len(script.asked) == 14, "a fixed handful of requests, whatever the number of stores"


async def test_evicting_is_unknown_while_pd_starts(play):
    """E6: the list is 404 and there is no scheduler at all: PD cannot say, and neither do we; nothing is added or proven."""
    script = settled(
        Script().say("GET", API + "/schedulers", 200, "[]\n").say("GET", LIST, 404, "404 page not found\n")
    )
    script.say("DELETE", API + "/schedulers/evict-leader-scheduler-1", 404, "null\n")
    client = await play(script)
    assert (await client.observe()).evicting is None
    with pytest.raises(UnansweredError, match="yet"):
        await client.add_evict_leader(1)
    with pytest.raises(UnansweredError, match="not proven"):
        await client.remove_evict_leader(1)
    assert script.count("POST", API + "/schedulers") == 0


@pytest.mark.parametrize(
    ("said", "evicting"),
    [
        ('{"store-id-ranges":{"4":[{"start-key":"","end-key":""}],"1":[]},"batch":3}', (1, 4)),
        ('{"store-id-ranges":{"7":[{"start-key":"","end-key":""}]}}', (7,)),
        ('{"store-id-ranges":{}}', ()),
        ('{"store-id-ranges":null}', ()),
    ],
    ids=["8.3", "4.0", "left behind empty", "null"],
)
async def test_evict_list_of_every_version(play, said, evicting):
    """The list as 4.0 to 8.5 write it; one that stayed behind with no store evicts nothing."""
    view = await (await play(settled(Script().say("GET", LIST, 200, said)))).observe()
    assert view.evicting == evicting


async def test_pd_3_without_lists_and_counts(play):
    """2.x and 3.x: one scheduler per store by name, zero counts left out, no region count, `5.3 GB` for a size."""
    script = Script().say("GET", LIST, 404, "404 page not found\n")
    script.say("GET", API + "/schedulers", 200, '["balance-leader-scheduler","evict-leader-scheduler-4"]')
    script.say("GET", API + "/regions/count", 404, "404 page not found\n")
    store = '{"store":{"id":4,"address":"demo-tikv-3:20160","state_name":"Up"},"status":{"capacity":"5.5 GB","start_ts":"0001-01-01T00:00:00Z"}}'
    script.say("GET", API + "/stores", 200, f'{{"count":1,"stores":[{store}]}}')
    script.say("GET", API + "/status", 200, '{"version":"3.0.20"}')
    view = await (await play(settled(script))).observe()
    assert view.evicting == (4,) and view.region_count == 6 and view.start_timestamp == 0
    only = view.stores[0]
    assert (only.leader_count, only.last_heartbeat_at, only.started_at) == (0, None, None)
    assert only.capacity_bytes == int(5.5 * 2**30)


async def test_the_leader_itself_says_since_when_it_runs(play):
    """A follower of 8.5 answers /status for itself: with several members the leader is asked at its own address."""
    leader = settled(Script().say("GET", API + "/status", 200, '{"start_timestamp":222}'))
    follower = Script().say("GET", API + "/status", 200, '{"start_timestamp":111}')
    client = await play(follower, leader)
    members = [
        {"name": n, "member_id": i, "client_urls": [u]} for i, (n, u) in enumerate(zip("ab", client.urls, strict=True))
    ]
    follower.say("GET", API + "/members", 200, json.dumps({"members": members, "leader": members[1]}))
    settled(follower)
    view = await client.observe()
    assert (view.leader, view.start_timestamp) == ("b", 222)


@pytest.mark.parametrize(
    ("status", "said", "healthy"),
    [
        (200, '[{"name":"a","member_id":0,"health":true},{"name":"b","member_id":1,"health":false}]', [True, False]),
        (500, '"no leader"', [None, None]),
        (200, "<html>", [None, None]),
        (404, "404 page not found\n", [None, None]),
    ],
)
async def test_a_look_says_who_is_unwell(play, status, said, healthy):
    """E9: PD's word about its own members; where it cannot say, nobody is called unwell and the look stands."""
    script = Script().say("GET", API + "/health", status, said)
    client = await play(script)
    members = [{"name": n, "member_id": i, "client_urls": client.urls} for i, n in enumerate("ab")]
    script.say("GET", API + "/members", 200, json.dumps({"members": members, "leader": members[0]}))
    view = await (settled(script) and client).observe()
    assert [m.healthy for m in view.members] == healthy


# ── Failures ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_next_endpoint_is_asked_when_one_fails(play):
    """A dead or leaderless member is left for the next one, and the one that answered is kept."""
    for failure in (
        REDIRECT,
        (503, "no leader"),
        (0, ""),
        (500, '"[PD:cluster:ErrNotBootstrapped]TiKV cluster not bootstrapped"'),
    ):
        first, second = Script().say("GET", API + "/schedulers", *failure), settled()
        client = await play(first, second)
        assert "balance-leader-scheduler" in await client.schedulers()
        await client.schedulers()
        assert second.count("GET", API + "/schedulers") == 2
        # The HTTP stack repeats a GET by itself, once, when its connection was cut.
        assert first.count("GET", API + "/schedulers") == (2 if failure[0] == 0 else 1)


async def test_failure_of_all_is_unanswered_in_bounded_time(play):
    """Three tries with growing pauses, then UnansweredError: nobody waits out a twelve-second election."""
    script = Script().say("GET", API + "/schedulers", *REDIRECT)
    client = await play(script)
    with pytest.raises(UnansweredError, match="redirect failed"):
        await client.schedulers()
    assert len(script.asked) == 3
    assert client.clock.slept == [0.2, 0.4]


async def test_slow_pd_is_unanswered(play):
    """A PD that does not answer in time has not answered."""

    class Slow(Script):
        async def handle(self, request):
            await asyncio.Event().wait()

    client = await play(Slow(), timeout_s=0.05, attempts=2)
    with pytest.raises(UnansweredError, match="did not answer"):
        await client.regions()


async def test_throttled_waits_as_asked(play):
    """429 is repeated after the time PD asks for, and given up as Throttled."""
    script = Script().say("GET", API + "/schedulers", 429, "limit", {"Retry-After": "3"})
    client = await play(script)
    with pytest.raises(ThrottledError):
        await client.schedulers()
    assert client.clock.slept == [3.0, 3.0]


async def test_operator_is_never_sent_twice(play):
    """POST /operators is not idempotent: a lost answer is Unanswered after one try."""
    script = Script().say("POST", API + "/operators", 0, "")
    client = await play(script)
    with pytest.raises(UnansweredError):
        await client.add_operator({"name": "transfer-leader", "region_id": 1, "to_store_id": 2})
    assert len(script.asked) == 1


@pytest.mark.parametrize(
    "page", ["<html>", '{"stores": [], "else": ' + "[" * 200_000 + "]" * 200_000 + "}"], ids=["html", "nested"]
)
async def test_proxy_page_is_no_answer(play, page):
    """Half an answer or an error page with status 200 says nothing about PD."""
    client = await play(settled(Script().say("GET", API + "/stores", 200, page)))
    with pytest.raises(UnansweredError, match=r"not understood|more values than any PD has"):
        await client.observe()


# ── Words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_recorded_refusals(play):
    """PD's recorded words become the right kind of no, whatever status they came with."""
    script = recorded(skip=15)
    script.say("GET", LIST, 200, '{"store-id-ranges":{}}')
    script.answers["GET", LIST].insert(0, (200, '{"store-id-ranges":{}}', {}))
    client = await play(script)
    with pytest.raises(NotFoundError, match="999"):
        await client.add_evict_leader(999)
    await client.add_operator({"name": "transfer-leader", "region_id": 1004, "to_store_id": 3})
    with pytest.raises(ConflictError, match="already have one"):
        await client.add_operator({"name": "transfer-leader", "region_id": 1004, "to_store_id": 3})
    running = await client.operator(1004)
    assert (running.status, running.region_id) == ("RUNNING", 1004)
    assert running.steps == ("transfer leader from store 2 to store 3",)
    await client.cancel_operator(1004)
    assert (await client.operator(1004)).status == "CANCEL"
    await client.cancel_operator(1004)
    assert await client.operator(99999) is None
    with pytest.raises(RefusedError, match="no voter"):
        await client.add_operator({})
    with pytest.raises(NotFoundError, match="99999"):
        await client.add_operator({})
    with pytest.raises(RefusedError, match="unknown operator"):
        await client.add_operator({})
    with pytest.raises(NotFoundError, match="nobody"):
        await client.transfer_pd_leader("nobody")


async def test_doubly_quoted_no_is_understood(play):
    """The second time PD quotes its answer twice; it still is NotFound."""
    script = Script().say("GET", LIST, 200, '{"store-id-ranges":{"1":[]}}')
    script.say("POST", API + "/schedulers", 500, '"\\"[PD:core:ErrStoreNotFound]store 999 not found\\"\\n"\n')
    with pytest.raises(NotFoundError, match="store 999 not found"):
        await (await play(script)).add_evict_leader(999)


async def test_listed_store_is_not_added_again(play):
    """Adding twice breaks eviction before 8.3, so a listed store is left alone."""
    script = Script().say("GET", LIST, 200, '{"store-id-ranges":{"1":[]}}')
    await (await play(script)).add_evict_leader(1)
    assert script.count("POST", API + "/schedulers") == 0


async def test_one_delete_removes_one_scheduler(play):
    """E3: once PD has answered, what it lists is another client's; without an answer it is not asked a second time, since
    that could remove what a person has added meanwhile."""
    removal = API + "/schedulers/evict-leader-scheduler-1"
    script = Script().say("GET", LIST, 200, '{"store-id-ranges":{"1":[]}}').say("DELETE", removal, 200, "null")
    await (await play(script)).remove_evict_leader(1)
    assert script.count("DELETE", removal) == 1
    script = Script().say("GET", LIST, 200, '{"store-id-ranges":{"1":[]}}').say("DELETE", removal, 503, "")
    with pytest.raises(UnansweredError):
        await (await play(script)).remove_evict_leader(1)
    assert script.count("DELETE", removal) == 1


# ── Small print ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("size", "expected"),
    [("100GiB", 100 << 30), ("1.5 TB", int(1.5 * 2**40)), ("0B", 0), ("512KiB", 512 << 10), ("", 0), (7, 7)],
)
def test_sizes_as_people_read_them(size, expected):
    """Sizes are powers of 1024 however they are printed; nonsense is nothing."""
    assert bytes_of(size) == expected


def test_operator_from_its_print():
    """Description, brief, region and steps come out of PD's one long line; another layout is None, not an error."""
    line = (
        "admin-move-peer {mv peer: store [2] to [1]} (kind:admin,region, region:1004(2, 4), createAt:…, startAt:…, "
        "currentStep:0, size:96, steps:[0:{add learner peer 2 on store 1}, 1:{use joint consensus, promote learner "
        "peer 2 on store 1 to voter}, 2:{remove peer on store 2}], timeout:[17m0s])"
    )
    found = operator(line)
    assert (found.desc, found.brief, found.region_id) == ("admin-move-peer", "mv peer: store [2] to [1]", 1004)
    assert found.steps[0] == "add learner peer 2 on store 1" and len(found.steps) == 3
    assert operator("something else altogether") is None
