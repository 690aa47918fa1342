"""The index of who is asked again: it finds exactly the operators that name what happened, in order of promotion."""

from mooring.core.engine.concerns import OperatorIndex
from mooring.core.model.cluster import Key
from mooring.core.model.events import Change, MachinesSeen, PdLost
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator, Payload


def operator(id_, source="handoff", subject="store/tidb/demo/1", **names):
    return Operator(id=id_, source=source, kind="x", subject=subject, payload=Payload(**names))


def change(kind, namespace, name):
    return Change(kind=kind, key=Key(namespace, name), old=None, new=None)


def test_each_happening_finds_those_that_name_it():
    """A pod, a node, a cluster, a workload, a registry: each finds its own, nobody else."""
    concerns = OperatorIndex()
    concerns.add(operator("2", cluster="tidb/demo", pod="tidb/demo-tikv-0"))
    concerns.add(operator("1", cluster="tidb/demo", pod="tidb/demo-tikv-1", node="n1"))
    concerns.add(operator("3", source="mix", subject="pod/shop/web-1", workload="Deployment/shop/web"))
    concerns.add(operator("4", source="fleet", subject="machine/abc", node="n2"))
    assert list(concerns.of(PdLost(Key("tidb", "demo"), "", 0.0))) == ["2", "1"]
    assert list(concerns.of(change(Kind.POD, "tidb", "demo-tikv-1"))) == ["1"]
    assert list(concerns.of(change(Kind.POD, "shop", "web-1"))) == ["3"]
    assert list(concerns.of(change(Kind.NODE, "", "n1"))) == ["1"]
    assert list(concerns.of(change(Kind.TIDB_CLUSTER, "tidb", "demo"))) == ["2", "1"]
    assert list(concerns.of(change(Kind.DEPLOYMENT, "shop", "web"))) == ["3"]
    assert list(concerns.of(MachinesSeen((), 0.0))) == ["4"]
    assert list(concerns.of(change(Kind.POD, "shop", "web-2"))) == []


def test_dropped_operators_leave_nothing():
    """What was dropped is found no more, and keeps no memory."""
    concerns = OperatorIndex()
    concerns.add(operator("1", cluster="tidb/demo"))
    concerns.drop("1")
    concerns.drop("1")
    assert list(concerns.of(PdLost(Key("tidb", "demo"), "", 0.0))) == []
    assert concerns._by_name == {}
