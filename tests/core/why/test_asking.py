"""Asking is free: it changes nothing, costs little, and never falls over."""

import pytest

from mooring.core.engine.invariants import broken
from mooring.core.engine.why import explain, render, unknown
from mooring.core.model.reasons import State
from tests.core.why.situations import NAME, NS, Environment

FEATURES = ("fleet", "handoff", "home", "mix")


def subjects(engine):
    world = engine.world
    yield from (f"pod/{p.key}" for p in world.pods())
    yield from (f"node/{n.name}" for n in world.nodes())
    yield from (f"workload/{w.namespace}/{w.kind}/{w.name}" for w in world.workloads())
    yield from (f"cluster/{tc.key}" for tc in world.tidb_clusters())
    yield from (f"store/{tc.key}/{s.id}" for tc in world.tidb_clusters() if (v := world.pd(tc.key)) for s in v.stores)
    yield from (f"operator/{o.id}" for o in engine.queue.operators())
    yield from (f"machine/{m.serial}" for m in world.machines())


def day(*, curious: bool) -> tuple[list[str], int]:
    """Two restarts at once, with or without somebody who asks about everything, all the time."""
    environment = Environment(features=FEATURES)
    asked = 0

    async def scenario(_):
        nonlocal asked
        await environment.build(replicas=2)
        environment.annotate(0, restart="")
        environment.annotate(1, restart="")
        for _ in range(120):
            await environment.rig.sleep(1.0)
            for one in environment.rig.replicas.values() if curious else ():
                engine = one.replica.engine
                for subject in list(subjects(engine)):
                    answer = explain(engine, subject, now=one.replica.shell.now())
                    assert answer is not None, subject
                    assert len(answer.answer) <= 110, answer.answer
                    assert answer.state in State
                    asked += 1
                assert broken(engine) == []
        assert not environment.rig.unsettled()
        assert environment.cluster.ready(NS, f"{NAME}-tikv") == 3

    environment.rig.play(scenario)
    return environment.rig.writes, asked


def test_asking_about_everything_all_the_time_changes_nothing():
    """O3: the deciders run dry for every answer, and what is written, in which order, is the same as without."""
    quiet, none = day(curious=False)
    curious, asked = day(curious=True)
    assert none == 0
    assert asked > 1000
    assert curious == quiet


@pytest.mark.parametrize(
    "subject", ["pod/x", "pod/a/b/c", "store/1", "node/", "workload/a", "machine/?", "operator/x", "ship/x", "x", ""]
)
def test_whatever_is_asked_gets_an_answer_or_the_nearest_names(subject):
    """No subject, however spelled, raises."""
    environment = Environment()

    async def scenario(_):
        await environment.build()
        found = explain(environment.engine, subject)
        text = (
            unknown(environment.engine, subject)
            if found is None
            else "\n".join(render({"answer": found.answer, "as_of": 0.0}))
        )
        assert text

    environment.rig.play(scenario)
