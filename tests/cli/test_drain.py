"""`mooring drain`: what it writes, what it says, and its exit codes (D4)."""

import json
from contextlib import asynccontextmanager

import pytest

from mooring.capabilities.drain.nodes import DRAIN
from mooring.cli.drain import Course, drain
from mooring.cli.output import Format
from mooring.core.model.exits import Exit, UserError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import podstate

BLOCKED = {"pod": "shop/bare", "reason": "bare-pod", "detail": "it has no controller", "to_type": "kubectl delete pod"}


@pytest.fixture
def cluster(monkeypatch):
    """The sandbox's API server behind the command, and a Mooring that answers what the test says."""
    made = Cluster(seed=1)
    made.add_nodes(2, "n")
    made.answers = [{"on": True, "nodes": []}]

    @asynccontextmanager
    async def connect(*_):
        yield made.api.as_client("person")

    monkeypatch.setattr("mooring.cli.drain.connect", connect)
    monkeypatch.setattr("mooring.cli.drain.LOOK_S", 0.0)
    monkeypatch.setattr(
        "mooring.cli.drain.ask", lambda *_: made.answers.pop(0) if made.answers[1:] else made.answers[0]
    )
    return made


def asked(cluster, name):
    return podstate.annotations_of(cluster.store.get(Kind.NODE, "", name)).get(DRAIN)


def row(state, left=0, blocked=()):
    at = "2026-01-01T00:00:00Z" if state == "drained" else None
    return {"node": "n0", "state": state, "pods_left": left, "pods": [], "blocked": list(blocked), "drained_at": at}


def test_it_asks_and_follows_until_the_node_is_empty(cluster, capsys):
    """D4: exit 0, with the rows of the contract."""
    cluster.answers += [{"on": True, "nodes": [row("draining", 2)]}, {"on": True, "nodes": [row("drained")]}]
    assert drain(("n0",), output=Format.JSON) == Exit.DONE
    assert json.loads(asked(cluster, "n0"))["since"]
    assert asked(cluster, "n1") is None
    (shown,) = json.loads(capsys.readouterr().out)["nodes"]
    assert (shown["state"], shown["pods_left"], shown["blocked"]) == ("drained", 0, [])


def test_what_is_blocked_at_the_deadline_exits_1_and_the_request_stays(cluster, capsys):
    """D4: with the pod, its reason and what to type."""
    cluster.answers += [{"on": True, "nodes": [row("blocked", 1, [BLOCKED])]}]
    assert drain(("n0",), deadline="1s") == Exit.CHECK_FAILED
    assert asked(cluster, "n0") is not None
    told = capsys.readouterr().err
    assert "bare-pod" in told and "kubectl delete pod" in told


def test_it_is_called_off(cluster):
    """D4: --cancel needs no running Mooring."""
    cluster.annotate(Kind.NODE, "", "n0", {DRAIN: ""})
    cluster.answers = [{"on": False, "nodes": []}]
    assert drain(("n0",), cancel=True) == Exit.DONE
    assert asked(cluster, "n0") is None


def test_where_drain_is_off_it_says_how_to_switch_it_on_and_writes_nothing(cluster):
    """D4: exit 4."""
    cluster.answers = [{"on": False, "nodes": []}]
    with pytest.raises(UserError, match="drain=true") as refused:
        drain(("n0",))
    assert refused.value.code == Exit.UNREACHABLE
    assert asked(cluster, "n0") is None


def test_no_node_is_annotated_where_one_of_them_does_not_exist(cluster):
    """D4: exit 2, naming it."""
    with pytest.raises(UserError, match="n9"):
        drain(("n0", "n9"))
    assert asked(cluster, "n0") is None


@pytest.mark.parametrize("how", [{}, {"nodes": ("n0",), "selector": "a=b"}])
def test_nodes_or_a_selector(cluster, how):
    """D4: one of both; exit 2."""
    with pytest.raises(UserError, match="-l"):
        drain(how.pop("nodes", ()), **how)


def test_a_person_sees_what_each_pod_waits_for_and_about_how_long():
    """D4: how many have left, a bar, and a line per pod that something is done about or that is blocked."""
    course = Course(["n0"])
    course.shown([{**row("draining", 14), "doing": []}], 100.0)
    doing = [
        {"pod": "tidb/demo-tikv-1", "what": "demo-tikv-1: 177 of 214 leaders gone, 3.5/s, about 10 s more (op 57)"}
    ]
    first, second = course.shown([{**row("draining", 7), "doing": doing}], 140.0)
    assert first == "n0 is being emptied: 7 of 14 pods left it, about 0:40 more  [███████░░░░░░░]"
    assert second == "  tidb/demo-tikv-1  177 of 214 leaders gone, 3.5/s, about 10 s more (op 57)"
    _, second = course.shown([row("blocked", 1, [BLOCKED])], 150.0)
    assert second == "  ▲ shop/bare  it has no controller:  kubectl delete pod"


def test_a_log_gets_a_line_per_event_and_each_once():
    """D4: a pod that left, one that is blocked, a node that is empty."""
    course = Course(["n0"])
    assert course.news([{**row("draining", 2), "pods": ["shop/a", "shop/b"]}]) == []
    assert course.news([{**row("draining", 1), "pods": ["shop/b"]}]) == ["shop/a has left n0"]
    assert course.news([{**row("draining", 1), "pods": ["shop/b"]}]) == []
    assert course.news([row("drained")]) == ["shop/b has left n0", "n0 is drained"]
