"""L1: what keeps a member of a system with leaders where it is, in which words, and what is undone when it may stay."""

import json

import pytest

from mooring.core.engine.why.answer import explain
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LEADERS, LEADERS_ENDPOINT
from mooring.core.model.marks import HANDOFF
from mooring.core.model.reasons import Reason, State
from tests.sim.scenarios.leaders import NAME, NAMESPACE, LeadersScenario

DRIVERS = ["etcd", "patroni", "hook"]


def play(story, driver="etcd", members=(0,), replicas=3):
    """The scenario's cluster and one replica; `story(rig, scenario)` does the rest."""
    scenario = LeadersScenario(driver, members, replicas=replicas)
    rig = scenario.rig()

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        await story(rig, scenario)

    rig.play(whole)
    return rig, scenario


def untouched(rig, scenario, name="db-0"):
    pod = rig.pod(NAMESPACE, name)
    return pod["metadata"]["uid"] == scenario.uids[name] and "deletionTimestamp" not in pod["metadata"]


def said_of(rig, name="db-0"):
    """What the engine says of this pod: of its operator, or of the request."""
    engine = rig.leader().engine
    record = engine.queue.record_of(f"pod/{NAMESPACE}/{name}")
    if record is not None and record.waiting_on is not None:
        return record.waiting_on
    return engine.verdicts.get(("handoff", f"leaders/{NAMESPACE}/{NAME}"))


def words(rig, name="db-0"):
    said = said_of(rig, name)
    return "" if said is None else f"{said.state} {said.reason}: {said.detail}"


@pytest.mark.parametrize("driver", DRIVERS)
def test_withdrawn_midway_it_stays_and_nothing_is_left(driver):
    """A request that is taken back while leadership is being proven gone: the mark goes, and a hook is told."""

    async def story(rig, scenario):
        await scenario.act(rig)
        await rig.until(lambda: scenario.system(rig).moves == 1)
        rig.cluster.annotate(Kind.POD, NAMESPACE, "db-0", {"mooring.dev/restart": None})
        await rig.until(lambda: not rig.unsettled() and not scenario.left_overs(rig))
        assert untouched(rig, scenario)
        assert scenario.system(rig).stayed == (["db-0"] if driver == "hook" else [])

    play(story, driver)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_leader_that_comes_back_is_a_fact_and_not_a_fight(driver):
    """Leadership returns by itself each time: it is asked ever more seldom, and from the third time on a person is told."""

    async def story(rig, scenario):
        scenario.system(rig).returns_to = "db-0"
        await scenario.act(rig)
        await rig.until(lambda: said_of(rig) is not None and said_of(rig).state is State.BLOCKED, limit_s=300)
        assert said_of(rig).reason is Reason.LEADERS_LEFT
        assert "annotate pod db-0 mooring.dev/restart-" in said_of(rig).remedy
        await rig.sleep(600)
        assert untouched(rig, scenario)
        assert scenario.system(rig).moves <= 8
        scenario.system(rig).returns_to = ""
        await rig.until(lambda: scenario.done(rig), limit_s=900)

    play(story, driver)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_system_that_does_not_answer_keeps_its_pods(driver):
    """First do no harm: silence is no zero. It waits, says who does not answer, and goes on once it does."""

    async def story(rig, scenario):
        scenario.system(rig).silent = {"db-0", "db-1", "db-2"}
        await rig.sleep(90)
        await scenario.act(rig)
        await rig.sleep(120)
        assert untouched(rig, scenario)
        assert said_of(rig).reason is Reason.LEADERS_UNREACHABLE, words(rig)
        scenario.system(rig).silent = set()
        await rig.until(lambda: scenario.done(rig), limit_s=600)

    play(story, driver)


@pytest.mark.parametrize("driver", ["etcd", "patroni"])
def test_with_another_member_silent_nobody_goes(driver):
    """Never two away: a member that does not answer is away already, whatever Kubernetes says of its pod."""

    async def story(rig, scenario):
        scenario.system(rig).silent = {"db-2"}
        await scenario.act(rig)
        await rig.sleep(120)
        assert untouched(rig, scenario) and scenario.system(rig).moves == 0
        assert "db-2" in str(explain(rig.leader().engine, f"pod/{NAMESPACE}/db-0"))

    play(story, driver)


def test_a_paused_patroni_is_left_alone():
    """A person has paused it: nobody is switched over, and the words name the command that resumes it."""

    async def story(rig, scenario):
        scenario.system(rig).paused = True
        await scenario.act(rig)
        await rig.until(lambda: "patronictl resume" in words(rig))
        await rig.sleep(60)
        assert untouched(rig, scenario) and scenario.system(rig).moves == 0

    play(story, "patroni")


@pytest.mark.parametrize(("driver", "replicas"), [("etcd", 2), ("etcd", 1), ("patroni", 1)])
def test_never_below_quorum_by_our_act(driver, replicas):
    """Two members of etcd are no quorum without one of them, and one is none at all: blocked, with what to type."""

    async def story(rig, scenario):
        await scenario.act(rig)
        await rig.until(lambda: said_of(rig) is not None and said_of(rig).state is State.BLOCKED)
        assert said_of(rig).reason is Reason.QUORUM
        assert "kubectl -n data scale sts db --replicas=3" in said_of(rig).remedy
        await rig.sleep(60)
        assert untouched(rig, scenario)

    play(story, driver, replicas=replicas)


def test_an_unknown_driver_restarts_nothing_and_names_the_known_ones():
    """A typo in the annotation must not turn a database into an ordinary workload."""

    async def story(rig, scenario):
        rig.cluster.annotate(Kind.STATEFUL_SET, NAMESPACE, NAME, {LEADERS: "etdc"})
        await scenario.act(rig)
        await rig.until(lambda: said_of(rig) is not None)
        assert said_of(rig).reason is Reason.MISCONFIGURED and "=etcd|patroni|hook" in said_of(rig).remedy
        await rig.sleep(60)
        assert untouched(rig, scenario)

    play(story)


@pytest.mark.parametrize("url", ["http://169.254.169.254/", "http://db.other.svc:2379", "http://db.data.svc@evil:1"])
def test_an_address_outside_its_namespace_is_never_asked(url):
    """L2: who may edit a StatefulSet must not send us anywhere; an administrator allows more with leader-hosts."""

    async def story(rig, scenario):
        rig.cluster.annotate(Kind.STATEFUL_SET, NAMESPACE, NAME, {LEADERS_ENDPOINT: url})
        await scenario.act(rig)
        await rig.until(lambda: "leader-hosts" in words(rig))
        await rig.sleep(30)
        assert untouched(rig, scenario)

    play(story)


def test_a_mark_of_a_member_that_nobody_asked_for_is_cleared():
    """A forged or forgotten mark moves nobody, and does not stay."""

    async def story(rig, scenario):
        mark = {"operator": "7", "source": "handoff", "reason": "asked", "step": "MoveLeaders", "since": 1.0}
        marks = {"db-1": {**mark, "podUID": rig.pod(NAMESPACE, "db-1")["metadata"]["uid"]}}
        rig.cluster.annotate(Kind.STATEFUL_SET, NAMESPACE, NAME, {HANDOFF: json.dumps(marks)})
        await rig.until(lambda: not scenario.left_overs(rig), limit_s=60)
        assert scenario.system(rig).moves == 0

    play(story)
    rig, _ = play(story)
    assert not [w for w in rig.writes if w.startswith("evict")]


def test_a_member_of_another_system_does_not_wait():
    """`leaders/…` is one per system: two systems are handed over side by side."""

    async def story(rig, scenario):
        rig.cluster.stateful_set(NAMESPACE, "other", 3, annotations={LEADERS: "etcd"})
        await rig.until(lambda: rig.cluster.ready(NAMESPACE, "other") == 3)
        await rig.sleep(10)
        scenario.restart(rig, "db-0")
        scenario.restart(rig, "other-0")

        def both():
            return {one.operator.subject for one in rig.leader().engine.running.values()} == {
                "pod/data/db-0",
                "pod/data/other-0",
            }

        await rig.until(both, limit_s=60)

    play(story)


@pytest.mark.parametrize("driver", ["etcd", "patroni"])
def test_after_a_moment_without_a_leader_still_one_goes_at_a_time(driver):
    """L1: without a leader all members seem to be out of sync, and the queue lets what is away already begin: four were
    promoted together, and three went in one second (simulation, seed 400)."""
    away = []

    async def story(rig, scenario):
        system = scenario.system(rig)
        await scenario.act(rig)
        await rig.until(lambda: "db-0" in scenario.renewed(rig), limit_s=120)
        for _ in range(3):
            led, system.leader = system.leader, ""
            await rig.sleep(6)
            system._led_by(led or "db-1")
            await rig.sleep(2)

        def done():
            away.append(sum(system.lag(name) is None for name in system.members))
            return scenario.done(rig)

        await rig.until(done, limit_s=900)

    play(story, driver, (0, 1, 2, 3, 4), replicas=5)
    assert max(away) == 1
