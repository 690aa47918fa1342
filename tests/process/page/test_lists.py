"""What a frame leaves out can be reached: page by page, by words, by name."""

from types import SimpleNamespace

from mooring.capabilities.handoff.requests import RESTART
from mooring.core.engine.engine import Engine
from mooring.core.model.cluster import Node
from mooring.core.model.decision import Verdict
from mooring.core.model.events import Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator, Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World
from mooring.process.http import queuerows
from mooring.process.http.frames import Framer
from mooring.process.http.lists import find, rack_words, row_page
from mooring.process.settings.config import Config
from tests.process.page.environment import on_stage


def node(name: str, **more) -> Node:
    return Node(name=name, uid=name, resource_version="1", ready="True", **more)


def line_of(engine: Engine, count: int) -> None:
    """So many wait for their turn on one target, as when a zone gets notice."""
    for number in range(count):
        operator = Operator(
            id=str(number + 1),
            source="spot",
            kind="replace-pod",
            subject=f"pod/shop/web-{number}",
            claims=(f"pod/shop/web-{number}",),
            steps=(Step(StepKind.ADD_REPLACEMENT),),
            phases=({f"workload/shop/web-{number % 7}": 1},),
            deadline=1e9 + number,
        )
        engine.queue.submit(operator)


def plain_replica(engine: Engine) -> SimpleNamespace:
    return SimpleNamespace(
        engine=engine,
        world=engine.world,
        identity="m",
        shell=SimpleNamespace(now=lambda: 0.0, backlog=0),
        elector=SimpleNamespace(holder="m"),
        config=Config(),
        informers=SimpleNamespace(informers=()),
        not_ready=list,
    )


async def test_of_a_long_queue_only_what_is_shown_is_made(monkeypatch):
    """Ten thousand may wait: a frame makes the first 200 rows, counts the rest, and pages reach every one of them."""
    engine = Engine(World(), Queue(live_settings()), [])
    for number in range(7):
        engine.queue.set_fact(f"workload/shop/web-{number}", "", 1, "one is missing")
    line_of(engine, 1000)
    made = []
    real = queuerows.waiting_row
    monkeypatch.setattr(queuerows, "waiting_row", lambda *a: made.append(a) or real(*a))
    framer = Framer(lambda: plain_replica(engine))
    frame = await framer.build()
    queue = frame.tables["queue"]
    assert (len(queue.rows), queue.total, queue.sums, len(made)) == (200, 1000, {"waiting": 1000}, 200)
    assert list(queue.rows) == list(engine.queue.waiting)[:200]
    seen = []
    for offset in range(0, 1000, 200):
        page = await row_page(framer, plain_replica(engine), "queue", offset, "")
        assert page.total == 1000
        seen += [row.id for row in page.rows]
        if offset == 0:
            assert [row.waiting_on for row in page.rows] == [row.waiting_on for row in queue.rows.values()]
    assert seen == list(engine.queue.waiting)
    found = await row_page(framer, plain_replica(engine), "queue", 0, "web-99")
    assert {row.what for row in found.rows} == {f"replace pod shop/web-{n}" for n in (99, *range(990, 1000))}


async def test_every_node_can_be_reached_and_found():
    """Pages of 200 add up to all nodes, in an order a person expects; words find by name, class, rack and news."""
    world = World()
    for number in range(1, 451):
        labels = {"cke.cybozu.com/rack": str(number // 40), "node.kubernetes.io/capacity": "spot"}
        world.apply(Seen(Kind.NODE, node(f"n{number}", labels=labels, unschedulable=number == 77)))
    engine = Engine(world, Queue(live_settings()), [])
    framer, replica = Framer(lambda: plain_replica(engine)), plain_replica(engine)
    pages = [await row_page(framer, replica, "nodes", offset, "") for offset in (0, 200, 400, 600)]
    names = [row.id for page in pages for row in page.rows]
    assert names == ["n77", *(f"n{n}" for n in range(1, 451) if n != 77)], "news first, then n2 before n10"
    assert [(await row_page(framer, replica, "nodes", 0, words)).total for words in ("n44", "rack 3", "cordoned")] == [
        11,
        40,
        1,
    ]
    assert [row.id for row in (await row_page(framer, replica, "racks", 0, "rack 1")).rows] == ["1", "10", "11"]
    told = rack_words(framer, replica, "1")
    assert told.startswith(
        "rack 1: 40 nodes: 1 cordoned, 39 ready.\n\nnode/n77  cordoned, not by Mooring: no new pods\nnode/n40"
    )
    assert rack_words(framer, replica, "99") is None


def test_find_puts_the_closest_first_and_knows_every_kind():
    """Operators, nodes, clusters, stores, workloads and pods; an exact name comes before what merely contains it."""

    async def look(stage):
        stage.cluster.annotate(Kind.POD, "tidb", "demo-tikv-1", {RESTART: ""})
        await stage.rig.until(lambda: stage.rig.leader() is not None and stage.rig.leader().engine.running)
        replica = stage.rig.leader()
        return [await find(replica, words) for words in ("demo-tikv-1", "n1", "demo", "web", "store 2", "", "nowhere")]

    tikv, nodes, demo, web, store, nothing, nowhere = on_stage(look)
    assert tikv[0][0] == "pod/tidb/demo-tikv-1" and any(s.startswith("store/tidb/demo/") for s in tikv[0])
    assert nodes[0][0] == "node/n1"
    assert demo[0][0] == "cluster/tidb/demo"
    assert web[0][0] == "workload/shop/Deployment/web"
    assert store == (["store/tidb/demo/2"], 0)
    assert nothing == ([], 0) and nowhere == ([], 0)


def test_what_is_held_but_is_no_object_still_says_why():
    """The fleet's plan is neither pod nor node: its row opens to its reason and what ends it."""
    engine = Engine(World(), Queue(live_settings()), [])
    engine.verdicts["fleet", "plan"] = Verdict(
        State.BLOCKED, Reason.MISCONFIGURED, "no ConfigMap", "mooring fleet init"
    )
    (row,) = queuerows.queue_rows(engine)
    assert (row.state, row.subject) == ("blocked", "machine/plan")
    words = queuerows.standing_words(engine, row.subject)
    assert (
        words
        == f"plan is blocked: no ConfigMap\n\nreason      {Reason.MISCONFIGURED}\nto change   mooring fleet init\n"
    )
    assert queuerows.standing_words(engine, "machine/other") == ""
