"""What `why` says of things that Mooring does not move, and of writes that the API server refuses."""

import pytest

from mooring.capabilities.drain.signals import departures
from mooring.capabilities.mix.policy import InterruptionPolicy
from mooring.core.engine.history import entry_of
from mooring.core.engine.why import explain, unknown
from mooring.core.engine.why.commands import has_command
from mooring.core.engine.why.condition import of_node
from mooring.core.model.cluster import Node, Taint
from mooring.core.model.reasons import Reason, State
from mooring.process.http import pagerows
from tests.core.why.situations import Environment


def node(**more) -> Node:
    return Node(name="n1", uid="u", resource_version="1", **{"ready": "True", **more})


def signs(one):
    return [*departures(one, InterruptionPolicy().detectors)]


@pytest.mark.parametrize("label", ["cke.cybozu.com/rack", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"])
def test_page_and_why_name_the_same_rack(label):
    """The rack of a node differed between page and `why` where only topology.kubernetes.io/rack was set."""
    environment = Environment()

    async def scenario(_):
        await environment.build()
        one = node(labels={label: "7"})
        assert pagerows.node_row(environment.engine, one).rack == "7"

    environment.rig.play(scenario)


@pytest.mark.parametrize(
    ("given", "state", "reason"),
    [
        (node(), None, None),
        (node(ready="Unknown"), State.WAITING, Reason.NODE_NOT_READY),
        (node(unschedulable=True), State.BLOCKED, Reason.CORDONED),
        (node(annotations={"mooring.dev/cordoned-by": "not json"}), State.WAITING, Reason.CORDONED),
        (node(annotations={"mooring.dev/retiring": "{}"}, unschedulable=True), State.WAITING, Reason.RETIRING),
        (node(annotations={"vacant.io/interrupt-at": "1970-01-01T00:10:00Z"}), State.WAITING, Reason.NOTICE),
        (node(annotations={"vacant.io/interrupt-at": "1970-01-01T00:00:01Z"}), State.BLOCKED, Reason.EXPIRED),
        (node(annotations={"vacant.io/interrupt-at": "soon"}), State.BLOCKED, Reason.MISCONFIGURED),
        (node(taints=(Taint("karpenter.sh/disrupted", "NoSchedule"),)), State.WAITING, Reason.NOTICE),
        (node(taints=(Taint("mooring.dev/reserved", "NoSchedule"),)), State.WAITING, Reason.RESERVED),
        (node(taints=(Taint("dedicated", "NoSchedule", "db"),)), State.STABLE, Reason.TAINTED),
        (node(taints=(Taint("node-role.kubernetes.io/control-plane", "NoSchedule"),)), None, None),
        (node(deletion_at=5.0), State.WAITING, Reason.LEAVING),
    ],
)
def test_a_node_that_is_not_as_usual_never_reads_as_if_nothing_were(given, state, reason):
    """O3: retiring, drained, cordoned, tainted, interrupted and expired are said, and what must be typed is there."""
    found = of_node(given, signs, 100.0)
    assert (found and found.state, found and found.reason) == (state, reason)
    if found is not None and found.state is State.BLOCKED:
        assert found.commands
    row = pagerows.news_of(given, signs, 100.0)
    assert row[1] == ("" if found is None else found.detail)


@pytest.mark.parametrize(
    ("text", "reason", "command"),
    [
        ('pods "x" is forbidden: User "mooring" cannot patch resource "pods"', Reason.FORBIDDEN, "mooring manifests"),
        ('pods "x" is forbidden: exceeded quota: small', Reason.FAILED, "kubectl -n tidb describe resourcequota"),
    ],
)
def test_a_refused_write_is_blocked_and_says_what_to_type(text, reason, command):
    """A missing right and a full quota: the object's answer and the operator's own end with a command."""
    environment = Environment()

    async def scenario(_):
        await environment.build()
        environment.annotate(0, restart="")
        await environment.until(lambda: environment.running(0))
        operator = next(iter(environment.engine.running.values())).operator
        environment.engine.history.tell(
            entry_of(environment.engine.now, "could-not", "i9", operator, Reason.FAILED, text)
        )
        for subject in ("pod/tidb/demo-tikv-0", f"operator/{operator.id}"):
            answer = explain(environment.engine, subject)
            assert (answer.state, answer.reason) == (State.BLOCKED, reason)
            assert has_command(answer.lines)
            assert any(command in line.text for line in answer.lines)

    environment.rig.play(scenario)


def test_asking_a_follower_recovers_nothing():
    """A replica that does not decide reads the marks; the recovery of the capabilities is not run for an answer."""
    environment = Environment()

    async def scenario(_):
        await environment.build(replicas=2)
        environment.annotate(0, restart="")
        await environment.until(lambda: environment.running(0))
        await environment.rig.sleep(5.0)
        follower = next(r.replica.engine for r in environment.rig.replicas.values() if not r.replica.engine.leading)
        recovered = []
        for capability in follower.capabilities.values():
            type(capability).recover, kept = lambda *a: recovered.append(a) or (), type(capability).recover
            try:
                for subject in ("pod/tidb/demo-tikv-0", "operator/1", "cluster/tidb/demo"):
                    answer = explain(follower, subject)
                    assert answer is None or answer.state is State.MOVING
            finally:
                type(capability).recover = kept
        assert recovered == []

    environment.rig.play(scenario)


def test_an_old_operator_ended_long_ago_or_never_was():
    """`operator/99999` after a few operators: numbers only rise, so the answer can tell."""
    environment = Environment()

    async def scenario(_):
        await environment.build()
        environment.annotate(0, restart="")
        await environment.until(lambda: environment.running(0))
        assert (
            unknown(environment.engine, "operator/99999")
            == "operator/99999 not found: the newest is 1; this one never was"
        )
        assert "ended long ago or never was" in unknown(environment.engine, "operator/0")

    environment.rig.play(scenario)
