"""The map's rows, the moves drawn on it, and the frames that are kept."""

import json
from types import SimpleNamespace

import msgspec
from aiohttp.test_utils import TestClient, TestServer

from mooring.capabilities.handoff.requests import RESTART
from mooring.core.model.cluster import Key, Node, Pod, PodShape
from mooring.core.model.events import Gone, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import PdOperator
from mooring.core.world.world import World
from mooring.process.http.frames import Framer
from mooring.process.http.mapview import CLASSES, ENDING, FIRST, MOVING, NAMED, READY, STARTING, MapRows
from mooring.process.http.moves import pd_moves
from mooring.process.http.page import PAGE
from mooring.process.http.past import PIECE, Past
from mooring.process.http.status import status_app
from mooring.process.http.stream import Hub, event
from mooring.process.settings.config import Config
from mooring_lab.demo.acts.pods import ModeChange, NoticeAct
from mooring_lab.demo.day import Day
from tests.process.page.environment import on_stage

WHAT_A_FRAME_READS = ("engine", "world", "identity", "shell", "elector", "informers", "not_ready")


def node(name: str, rack: str = "1", **more) -> Node:
    labels = {"cke.cybozu.com/rack": rack, "node.kubernetes.io/capacity": "spot" if name[0] == "s" else "on-demand"}
    more.setdefault("resource_version", "1")
    return Node(name=name, uid=name, ready="True", labels=labels, cpu_milli=4000, **more)


def pod(name: str, on: str, version: int = 1, labels=None, **more) -> Pod:
    shape = PodShape(labels=labels or {}, cpu_milli=500)
    return Pod("shop", name, f"uid-{name}", str(version), shape, node=on, phase="Running", **more)


def letter(cls: str, state: int) -> str:
    return chr(FIRST + 4 * CLASSES.index(cls) + state)


async def test_a_row_says_what_stands_on_a_node():
    """Racks, classes, fullness, and one letter a pod: what it is, and how it stands."""
    world = World()
    for name, rack in (("n1", "1"), ("s1", "1"), ("n10", "2"), ("n2", "2")):
        world.apply(Seen(Kind.NODE, node(name, rack)))
    for made in (
        pod("a", "n1", ready=True, labels={"vacant.io/affinity": "on-demand"}),
        pod("b", "n1", ready=False, labels={"vacant.io/affinity": "spot"}),
        pod("c", "n1", ready=True, deletion_at=1.0),
        pod("d", "n1", ready=True, labels={"app.kubernetes.io/component": "tikv"}),
        pod("e", ""),
    ):
        world.apply(Seen(Kind.POD, made))
    rows = MapRows(world)
    found = await rows.refresh({"shop/d": "7"})
    assert list(found) == ["n1", "s1", "n2", "n10"], "by rack, on-demand before spot, n2 before n10"
    one = found["n1"]
    assert (one.rack, one.cls, one.state, one.full) == ("1", "on-demand", "ok", 50)
    assert one.cells == (
        letter("other", ENDING) + letter("on-demand", READY) + letter("spot", STARTING) + letter("tikv", MOVING)
    )
    assert one.names == ("shop/c", "shop/a", "shop/b", "shop/d")
    assert rows.unplaced == 1


async def test_only_what_changed_is_made_anew():
    """A frame costs what has changed: every other row is the very same object, and without news so are all."""
    world = World()
    for number in range(300):
        world.apply(Seen(Kind.NODE, node(f"n{number}")))
        world.apply(Seen(Kind.POD, pod(f"p{number}", f"n{number}", ready=True)))
    rows = MapRows(world)
    first = await rows.refresh({})
    assert await rows.refresh({}) is first
    world.apply(Seen(Kind.POD, pod("p7", "n8", 2, ready=True)))
    second = await rows.refresh({})
    assert {name for name in first if first[name] is not second[name]} == {"n7", "n8"}
    world.apply(Gone(Kind.NODE, Key("", "n9"), "n9"))
    assert set(first) - set(await rows.refresh({})) == {"n9"}


async def test_of_many_pods_only_letters_are_sent():
    """150,000 names would be a hundred times what their letters are."""
    world = World()
    world.apply(Seen(Kind.NODE, node("n1")))
    for number in range(NAMED + 1):
        world.apply(Seen(Kind.POD, pod(f"p{number}", "n1", ready=True)))
    rows = MapRows(world)
    assert (await rows.refresh({}))["n1"].names == ()
    world.apply(Gone(Kind.POD, Key("shop", "p0"), "uid-p0"))
    assert len((await rows.refresh({}))["n1"].names) > 0, "few enough to read again"


def test_a_store_that_empties_is_drawn_from_its_node_and_told_in_words():
    """The gauge of leaders, the move on the map and the line of the timeline come from one restart."""

    async def look(stage):
        framer = Framer(stage.rig.leader, cluster="prod-tokyo")
        await framer.build()
        stage.cluster.annotate(Kind.POD, "tidb", "demo-tikv-0", {RESTART: ""})
        await stage.rig.until(lambda: stage.rig.leader().engine.running)
        early = await framer.build()
        await stage.rig.until(lambda: not stage.rig.leader().engine.running, limit_s=600)
        return early, await framer.build()

    early, late = on_stage(look)
    assert early.head["cluster"] == "prod-tokyo"
    (move,) = early.tables["moves"].rows.values()
    what, name, origin, _, state, *_ = move
    assert (what, name, state) == ("leaders", "tidb/demo-tikv-0", "moving")
    row = early.tables["map"].rows[origin]
    assert row.stores[0][1] == "demo-tikv-0" and any((ord(c) - FIRST) & 3 == MOVING for c in row.cells)
    words = [row["words"] for row in late.tables["timeline"].rows.values()]
    assert any(w.startswith("tidb/demo-tikv-0 handed over its leaders in ") for w in words), words
    assert any(w.startswith(f"tidb/demo-tikv-0 restarted on {origin}, away ") for w in words), words
    json.dumps(json.loads(msgspec.json.encode(late.tables["timeline"].rows)))


def test_moves_are_told_in_words_with_where_they_went():
    """One line per move: pod, class and node on both ends, how long it was away, and the reason."""
    day, told = Day(lambda _: None), {}
    framer = Framer(lambda: day.stage.rig.leader())

    class Around:
        def __init__(self, _):
            pass

        async def start(self):
            pass

        async def keep(self):
            frame = await framer.build()
            told.update(frame.tables["timeline"].rows)

        async def stop(self):
            pass

    class Listening(ModeChange):
        async def play(self, stage):
            framer.listen()
            return await super().play(stage)

    day.run((Listening, NoticeAct), around=Around)
    words = [row["words"] for row in told.values()]
    moved = [w for w in words if w.startswith("shop/web-") and "custom 3 wants 3" in w]
    assert len(moved) == 1 and " went spot s" in moved[0] and " → on-demand n" in moved[0], moved
    assert ", away 8 s: custom 3 wants 3 of 5 on on-demand, had 2" in moved[0]
    notices = [w for w in words if "vacant.io/interrupt-at" in w]
    assert len(notices) > 10 and all(" went spot s" in w and " → " in w and "away" not in w for w in notices), notices
    assert all("…" not in w for w in notices), "every one of them has a target of its own"


def test_the_past_is_bounded_and_begins_with_a_whole_frame():
    """Oldest pieces go first, a piece can be read by itself, and acts are marked."""
    past = Past(most_bytes=4_000)
    for seq in range(1, 10 * PIECE):
        whole = past.wants_snapshot()
        act = {"act": {"title": f"act {seq // 100}"}} if seq > 400 else {}
        past.add(seq, float(seq), event("snapshot" if whole else "delta", seq, {"n": seq * 7919}), act)
    index = past.index()
    assert 1 < len(index["pieces"]) < 10
    for piece in index["pieces"]:
        events = past.piece(piece["seq"]).split(b"\n\n")[:-1]
        assert len(events) == piece["frames"] and events[0].startswith(b"event: snapshot\nid: %d\n" % piece["seq"])
        assert all(e.startswith(b"event: delta") for e in events[1:])
    assert [words for _, words in index["marks"]] == ["act 4", "act 5"]
    assert past.piece(1) is None


def test_frames_are_kept_while_nobody_watches():
    """The scrubber goes back to before the page was opened."""

    async def look(stage):
        hub = Hub(Framer(stage.rig.leader))
        for _ in range(9):
            hub._beat()
            await stage.rig.sleep(0.5)
        return hub.past

    past = on_stage(look)
    (piece,) = past.index()["pieces"]
    assert piece["frames"] == 2, "every fourth tick, watched by nobody"
    assert past.piece(1).startswith(b"event: snapshot\nid: 1\n")


async def test_the_past_is_served_by_piece():
    """A piece is a part of a recording; what is not kept is 404."""
    app = status_app(lambda: None)
    hub: Hub = app[PAGE].hub
    hub.past.add(5, 1.0, event("snapshot", 5, {"a": 1}), {})
    async with TestClient(TestServer(app)) as client:
        index = await (await client.get("/api/v1/past")).json()
        assert index == {"pieces": [{"seq": 5, "frames": 1, "begun": 1.0, "ended": 1.0}], "marks": []}
        answer = await client.get("/api/v1/past/5")
        assert await answer.read() == hub.past.piece(5)
        assert [(await client.get(f"/api/v1/past/{n}")).status for n in ("6", "x", "9" * 40)] == [404] * 3


def test_regions_that_pd_moves_by_itself_are_drawn_too():
    """The map does not stand still while PD repairs: its own operators are moves from node to node, marked as PD's."""

    async def look(stage):
        world = stage.rig.leader().world
        key = next(iter(world.tidb_clusters())).key
        view = world.pd(key)
        one, two = (s.id for s in view.stores[:2])
        steps = (f"add learner peer 9 on store {two}", f"remove peer on store {one}")
        own = PdOperator(7, "fix-peer", steps=steps)
        unknown = PdOperator(8, "split-region", steps=("split region with policy SCAN",))
        ended = PdOperator(6, "fix-peer", status="SUCCESS", steps=steps)
        changed = msgspec.structs.replace(view, operators=(own, unknown, ended))
        shown = SimpleNamespace(tidb_clusters=world.tidb_clusters, pd=lambda _: changed, tidb_pods=world.tidb_pods)
        nodes = {p.name: p.node for p in world.tidb_pods(key, "tikv")}
        ours = {"41": ["region", f"{key}/7", "", "", "moving", "", ""]}
        expected = [nodes[view.stores[0].pod_name], nodes[view.stores[1].pod_name]]
        return dict(pd_moves(shown, {})), dict(pd_moves(shown, ours)), expected

    found, without_ours, (origin, target) = on_stage(look)
    assert found == {"pd tidb/demo/7": ["region", "tidb/demo/7", origin, target, "moving", "PD's own", ""]}
    assert without_ours == {}, "what we asked for is drawn once"


def test_the_header_names_the_cluster():
    """`cluster-name` beats the context of the kubeconfig."""

    async def look(stage):
        leader = stage.rig.leader()
        names = []
        for config in (Config(cluster_name="prod-tokyo", context="dev"), Config(context="dev"), Config()):
            shown = SimpleNamespace(**{k: getattr(leader, k) for k in WHAT_A_FRAME_READS}, config=config)
            names.append((await Framer(lambda shown=shown: shown).build()).head["cluster"])
        return names

    assert on_stage(look) == ["prod-tokyo", "dev", ""]
