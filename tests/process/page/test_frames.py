"""Frames: built once for all, sent as differences that add up to the row_or_defect."""

import asyncio
import itertools
import json
import re
import socket
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.capabilities.drain.signals import departures
from mooring.capabilities.handoff.requests import RESTART
from mooring.capabilities.mix.policy import InterruptionPolicy
from mooring.core.engine.history import HistoryEntry
from mooring.core.model.cluster import Node, Taint
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import Machine, MachineState
from mooring.process.http import pagerows
from mooring.process.http.frames import Frame, Framer, FrameTable, StartCounter, row_or_defect, silent_s
from mooring.process.http.listening import Listener
from mooring.process.http.page import POLICY
from mooring.process.http.status import is_loopback, status_app
from mooring.process.http.stream import STALLED_TICKS, Hub, difference, picture
from mooring.process.settings.config import Config
from tests.process.page.environment import on_stage

STATIC = Path(pagerows.__file__).parent / "static"
VIEWS = ("map", "moves", "queue", "stores", "nodes", "racks", "timeline")


def seen(frame: Frame) -> dict:
    """A frame as a browser has it."""
    return json.loads(msgspec.json.encode(picture(frame)))


def applied(before: dict, delta: dict) -> dict:
    """What `state.js` does with a delta."""
    after = {"as_of": delta["as_of"], "head": delta.get("head", before["head"]), "tables": {}}
    for name, old in before["tables"].items():
        change = delta.get("tables", {}).get(name, {})
        order = change.get("order", old["order"])
        rows = {i: change.get("set", {}).get(i, old["rows"].get(i)) for i in order}
        after["tables"][name] = {
            "rows": rows,
            "order": order,
            "total": change.get("total", old["total"]),
            "sums": change.get("sums", old["sums"]),
        }
    return after


tables = st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 3), max_size=6).map(
    lambda rows: FrameTable({k: {"id": k, "n": v} for k, v in rows.items()}, len(rows), {"sum": sum(rows.values())})
)
frames = st.builds(
    lambda at, head, found: Frame(at, {"needs": head}, dict(zip(VIEWS, found, strict=True))),
    st.floats(0, 9),
    st.integers(0, 2),
    st.tuples(*[tables] * len(VIEWS)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(frames, min_size=2, max_size=5))
def test_deltas_add_up_to_the_newest_snapshot(run):
    """Whoever takes a snapshot and every delta after it sees exactly what a fresh snapshot shows."""
    mine = seen(run[0])
    for old, new in itertools.pairwise(run):
        mine = applied(mine, json.loads(msgspec.json.encode(difference(old, new))))
        assert mine == seen(new)


def test_nothing_new_is_a_delta_of_a_few_bytes():
    """While nothing happens a beat goes out, and only a beat."""
    frame = Frame(1.0, {"needs": 0}, {name: FrameTable() for name in VIEWS})
    assert difference(frame, Frame(2.0, {"needs": 0}, {name: FrameTable() for name in VIEWS})) == {"as_of": 2.0}


def test_a_restart_and_its_follower_show_in_the_queue_the_stores_and_the_timeline():
    """T11 on the page: the waiting one names target, sum and blocker; the store shows who holds it."""

    async def look(stage):
        for name in ("demo-tikv-0", "demo-tikv-1"):
            stage.cluster.annotate(Kind.POD, "tidb", name, {RESTART: ""})
        await stage.rig.until(lambda: stage.rig.leader() is not None and stage.rig.leader().engine.waiting)
        return await Framer(stage.rig.leader).build()

    frame = on_stage(look)
    running, waiting = [row for row in frame.tables["queue"].rows.values() if row.source == "handoff" and row.op]
    assert (running.state, waiting.state) == ("moving", "waiting")
    assert (
        waiting.waiting_on.startswith("evicting/tidb/demo 1/1") and waiting.by == ("op 1",) and waiting.missing == "1"
    )
    assert waiting.since is not None
    fullest = next(iter(frame.tables["stores"].rows.values()))
    assert fullest.used_by == (("op 1", 10, "op"),) and (fullest.used, fullest.limit) == (10, 20)
    assert fullest.node and fullest.rack
    assert frame.head["running"] == 1 and frame.head["waiting"] == 1
    lines = {row["op"]: row for row in frame.tables["timeline"].rows.values()}
    assert (lines["1"]["state"], lines["2"]["state"]) == ("promoted", "queued")
    assert lines["1"]["words"].startswith(
        "tidb/demo-tikv-0 hands over its leaders: annotation tidb.pingcap.com/restart"
    )
    assert [verb for _, verb, _ in lines["1"]["steps"]][:2] == ["queued", "promoted"]
    assert frame.tables["nodes"].sums == {"on-demand": 12, "spot": 12, "unplaced": 0, "quiet": 24, "worth": ""}
    assert [row.total for row in frame.tables["racks"].rows.values()] == [8, 8, 8]


def test_a_bad_row_is_a_question_mark():
    """One row that cannot be drawn does not break the page."""

    def broken():
        raise RuntimeError("a defect")

    assert row_or_defect(broken, "7") == {"id": "7", "state": "?"}


def test_bars_count_what_began_in_each_five_minutes_of_the_hour():
    """However long the day was, only the last hour and two days of sums are kept."""
    begun = StartCounter()
    for second in range(0, 7200, 2):
        verb = "promoted" if second % 4 == 0 else "finished"
        begun.take([HistoryEntry(at=float(second), id="1", verb=verb, source="mix")])
    assert begun.bars(7199.0) == {"mix": [75] * 12}
    assert begun.moved(7199.0) == 1800 and begun.moved(90_000.0) == 0


def node(name: str, **more) -> Node:
    return Node(name=name, uid=name, resource_version="1", ready="True", **more)


@pytest.mark.parametrize(
    ("given", "state", "words"),
    [
        (node("a"), "ok", ""),
        (msgspec.structs.replace(node("a"), ready="Unknown", ready_reason="NodeStatusUnknown"), "silent", "not Ready"),
        (node("a", annotations={"vacant.io/interrupt-at": "2026-01-01T00:02:00Z"}), "interrupted", "notice"),
        (node("a", annotations={"mooring.dev/cordoned-by": "not json"}), "cordoned", "cordoned, by Mooring"),
        (node("a", unschedulable=True), "cordoned", "cordoned, not by Mooring"),
        (node("a", taints=(Taint("mooring.dev/reserved", "NoSchedule"),)), "reserved", "reserved for a member"),
    ],
)
def test_what_there_is_to_say_about_a_node(given, state, words):
    """Each kind of news has its words, and a mark that cannot be read is still news."""
    found = pagerows.news_of(given, lambda one: [*departures(one, InterruptionPolicy().detectors)])
    assert found[0] == state and words in found[1]


def test_racks_count_nodes_and_spare_machines_apart():
    """A count means the same in every view: nodes; machines that are no node yet are counted beside them."""
    machines = [
        Machine("a", "10.0.0.1", MachineState.HEALTHY, rack=1),
        Machine("b", "10.0.0.2", MachineState.HEALTHY, rack=1),
        Machine("c", "10.0.0.3", MachineState.RETIRING, rack=2),
        Machine("d", "10.0.0.4", MachineState.UNREACHABLE, rack=2),
        Machine("e", "10.0.0.5", MachineState.RETIRED, rack=2),
    ]
    nodes = {"10.0.0.1": ("1", "ok"), "s1": ("1", "ok"), "10.0.0.3": ("2", "ok"), "10.0.0.4": ("2", "ok")}
    rows = pagerows.rack_rows(pagerows.machine_states(machines, nodes))
    assert [(r.id, r.total, r.ok, r.leaving, r.silent, r.spare, r.glyphs) for r in rows] == [
        ("2", 2, 0, 1, 1, 0, "~!"),
        ("1", 2, 2, 0, 0, 1, ""),
    ]
    news = [("3", "interrupted"), ("3", "interrupted"), ("3", "cordoned"), ("3", "leaving"), ("3", "ok")]
    (three,) = pagerows.rack_rows(news)
    assert (three.interrupted, three.cordoned, three.leaving, three.ok, three.glyphs) == (2, 1, 1, 1, "▲▲=~·")
    without = pagerows.rack_rows(pagerows.machine_states([], nodes))
    assert {r.id: r.total for r in without} == {r.id: r.total for r in rows}, "the registry changes no count of nodes"


async def test_one_frame_a_tick_for_any_number_of_viewers():
    """Ten viewers cost as many frames as one, and each sees snapshot, then deltas in order."""

    class Still(Framer):
        async def build(self):
            await asyncio.sleep(0.01)
            return Frame(1.0, {"n": hub.built}, {name: FrameTable() for name in VIEWS})

    hub = Hub(Still(lambda: None), tick_s=3600)
    app = web.Application()
    app.add_routes([web.get("/s", hub.serve)])
    app.on_shutdown.append(hub.hang_up)
    async with TestClient(TestServer(app)) as client:
        streams = await asyncio.gather(*(client.get("/s") for _ in range(10)))
        for stream in streams:
            assert (await stream.content.readline()) == b"event: snapshot\n"
            await stream.content.readuntil(b"\n\n")
        before = hub.built
        assert before == 1, "all of them came at once, and waited for the same frame"
        for _ in range(3):
            await hub.tick()
            for stream in streams:
                assert (await stream.content.readline()) == b"event: delta\n"
                await stream.content.readuntil(b"\n\n")
        assert hub.built == before + 3
        # One who missed a beat is given the row_or_defect instead.
        for _ in range(2):
            await hub.tick()
        names = [await stream.content.readline() for stream in streams]
        assert set(names) <= {b"event: delta\n", b"event: snapshot\n"}


def test_nothing_in_the_page_can_make_markup_out_of_a_name():
    """Text only: no module writes markup, and no file asks for anything from elsewhere."""
    for file in STATIC.iterdir():
        words = file.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|srcdoc", words), (
            file
        )
        outside = re.findall(r"(?:https?:)?//[\w.]+", re.sub(r"(?m)^\s*//.*$|\s// .*$", "", words))
        assert set(outside) <= {"http://www.w3.org"}, f"{file}: {outside}"
        assert not re.search(r"""\son\w+\s*=\s*["']|style\s*=\s*["']""", words) or file.suffix != ".html"


async def test_the_files_are_open_and_what_they_fetch_is_not():
    """Off loopback the page's files come without a token, and every answer with data wants one."""
    app = status_app(lambda: None, token="hush", on_loopback=False)
    async with TestClient(TestServer(app)) as client:
        index = await client.get("/")
        assert index.status == 200 and index.headers["Content-Security-Policy"] == POLICY
        assert (await client.get("/static/main.js")).status == 200
        assert (await client.get("/static/%2e%2e%2fstatus.py")).status in {401, 404}
        for path in (
            "/api/v1/stream",
            "/api/v1/past",
            "/api/v1/rows/nodes",
            "/api/v1/find?q=a",
            "/api/v1/say/node/a",
            "/metrics",
        ):
            assert (await client.get(path)).status == 401, path
        # With the token the guard lets it through; here no replica runs behind it.
        assert (await client.get("/api/v1/rows/nodes", headers={"Authorization": "Bearer hush"})).status == 503


async def test_on_loopback_only_this_machine_is_answered():
    """A foreign page that points its own name at 127.0.0.1 gets nothing."""
    async with TestClient(TestServer(status_app(lambda: None))) as client:
        assert (await client.get("/healthz", headers={"Host": "evil.example"})).status == 421
        assert (await client.get("/healthz", headers={"Host": "localhost:8390"})).status == 200
        assert (await client.get("/healthz", headers={"Host": "[::1]:8390"})).status == 200


def test_cut_off_from_the_api_server_a_frame_says_how_old_its_data_is():
    """A replica that no longer hears the cluster still builds frames: they carry the age of what they show."""

    async def look(stage):
        framer = Framer(stage.rig.any)
        ages = [(await framer.build()).head["silent_s"]]
        stage.cluster.api.faults.dead_for(60.0)
        await stage.rig.sleep(30.0)
        ages.append((await framer.build()).head["silent_s"])
        await stage.rig.sleep(20.0)
        ages.append((await framer.build()).head["silent_s"])
        await stage.rig.until(lambda: silent_s(stage.rig.any()) == 0.0, limit_s=180)
        return ages

    well, early, late = on_stage(look)
    assert well == 0.0
    assert 29.0 <= early <= 95.0, "at least as old as the outage; a quiet watch may have been silent before it"
    assert late == pytest.approx(early + 20.0, abs=0.5)


def test_the_page_and_its_api_can_only_be_read():
    """Not one route takes anything but GET, and the default address is this machine's own."""
    app = status_app(lambda: None)
    assert {route.method for route in app.router.routes()} <= {"GET", "HEAD"}
    assert is_loopback(Config().listen_http.rpartition(":")[0])
    assert "'unsafe" not in POLICY and "default-src 'none'" in POLICY and "*" not in POLICY


async def test_without_a_token_nobody_off_loopback_is_answered():
    """Forgetting the token closes the page; it does not open it."""
    async with TestClient(TestServer(status_app(lambda: None, token="", on_loopback=False))) as client:
        for given in ("", "Bearer ", "Bearer x"):
            assert (await client.get("/api/v1/frame", headers={"Authorization": given})).status == 401


async def test_a_viewer_before_the_first_replica_waits_without_spinning():
    """Fails open: with no replica to look at the stream is open and silent, and the loop is free for others."""

    class Later(Framer):
        ready = False

        async def build(self):
            return Frame(1.0, {}, {name: FrameTable() for name in VIEWS}) if self.ready else None

    framer = Later(lambda: None)
    hub = Hub(framer, tick_s=3600)
    app = web.Application()
    app.add_routes([web.get("/s", hub.serve)])
    app.on_shutdown.append(hub.hang_up)
    async with TestClient(TestServer(app)) as client:
        stream = await asyncio.wait_for(client.get("/s"), 10)
        await hub.tick()
        framer.ready = True
        await hub.tick()
        assert (await asyncio.wait_for(stream.content.readline(), 10)) == b"event: snapshot\n"


@pytest.fixture
async def stalled_hub():
    """A page with one viewer who connected and takes no bytes."""

    class Large(Framer):
        async def build(self):
            return Frame(1.0, {"large": "x" * (32 << 20)}, {name: FrameTable() for name in VIEWS})

    hub = Hub(Large(lambda: None), tick_s=3600)
    app = web.Application()
    app.add_routes([web.get("/s", hub.serve)])
    app.on_shutdown.append(hub.hang_up)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    with socket.create_connection(site._server.sockets[0].getsockname()) as viewer:
        viewer.sendall(b"GET /s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        async with asyncio.timeout(60):
            while not hub._sending:
                await asyncio.sleep(0)
        yield hub, runner
    await runner.cleanup()


async def test_a_stalled_viewer_does_not_delay_the_stop(stalled_hub):
    """`mooring run` stops within 10 s: a viewer who takes no bytes is hung up on."""
    hub, runner = stalled_hub
    async with asyncio.timeout(10):
        await runner.cleanup()
    assert hub.viewers == 0


async def test_a_stalled_viewer_is_hung_up_on(stalled_hub):
    """It would hold one of the 200 places, and its frame, until the process ends."""
    hub, _ = stalled_hub
    hub._begin = lambda: None  # only the beats count here
    for _ in range(STALLED_TICKS + 1):
        hub._beat()
    async with asyncio.timeout(10):
        while hub.viewers:
            await asyncio.sleep(0)


async def test_a_client_that_takes_no_answer_does_not_delay_the_stop():
    """The same for every other answer: the listener gives up after `STOP_S`, twice."""
    asked = asyncio.Event()

    async def large(_):
        asked.set()
        return web.Response(body=b"x" * (32 << 20))

    app = web.Application()
    app.add_routes([web.get("/", large)])
    listener = Listener(app)
    await listener.start("127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", listener.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await asyncio.wait_for(asked.wait(), 60)
        async with asyncio.timeout(10):
            await listener.stop()
