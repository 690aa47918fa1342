"""`mooring restart` asks exactly the pods that it names, or none (D5)."""

import json
from contextlib import asynccontextmanager

import pytest

from mooring.cli.output import Format
from mooring.cli.restart import RESTART, TIDB_RESTART, annotation, label_selector, restart
from mooring.core.model.exits import Exit, UserError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import podstate


@pytest.mark.parametrize("selector", [{}, {"matchExpressions": [{"key": "app", "operator": "Exists"}]}])
def test_a_selector_without_labels_is_refused(selector):
    """D5: as a query of labels it would be empty, and every pod of the namespace would be restarted."""
    with pytest.raises(UserError, match="pod/NAME"):
        label_selector("StatefulSet/db", selector)
    assert label_selector("StatefulSet/db", {"matchLabels": {"b": "2", "a": "1"}}) == "a=1,b=2"


@pytest.mark.parametrize("component", ["tikv", "pd", "tidb"])
def test_members_of_tidb_are_asked_by_the_annotation_that_handoff_reads(component):
    """D5, E13; every other pod by ours, also one whose labels only look alike."""
    labels = {"app.kubernetes.io/managed-by": "tidb-operator", "app.kubernetes.io/component": component}
    assert annotation({"metadata": {"name": "a", "labels": labels}}) == TIDB_RESTART
    del labels["app.kubernetes.io/managed-by"]
    assert annotation({"metadata": {"name": "a", "labels": labels}}) == RESTART


def test_what_keeps_a_pod_is_said_at_once_with_what_to_type(monkeypatch, capsys):
    """D5: the only PD member; the command waited for its timeout and said nothing."""
    made = Cluster(seed=1)
    labels = {"app.kubernetes.io/managed-by": "tidb-operator", "app.kubernetes.io/instance": "demo"}
    meta = {"namespace": "tidb", "name": "demo-pd-0", "labels": {**labels, "app.kubernetes.io/component": "pd"}}
    made.store.create(Kind.POD, {"metadata": meta, "spec": {"containers": []}})
    row = {
        "about": "tidb/demo-pd-0",
        "state": "blocked",
        "waiting_on": "it is the only PD member",
        "remedy": "kubectl …",
    }
    rows = [row, {"about": "tidb/demo-pd-1", "state": "blocked"}, {"about": "tidb/demo-pd-0", "state": "waiting"}]

    @asynccontextmanager
    async def connect(*_):
        yield made.api.as_client("person")

    monkeypatch.setattr("mooring.cli.restart.connect", connect)
    monkeypatch.setattr("mooring.cli.restart.LOOK_S", 0.0)
    monkeypatch.setattr("mooring.cli.restart.ask", lambda *_: {"features": ["handoff"], "rows": rows})
    code = restart("pod/demo-pd-0", namespace="tidb", timeout="1s", output=Format.JSON)
    assert code == Exit.CHECK_FAILED
    said = capsys.readouterr()
    assert said.err.count("tidb/demo-pd-0 is blocked: it is the only PD member; kubectl …") == 1
    kept = [{"pod": "tidb/demo-pd-0", "detail": "it is the only PD member", "to_type": "kubectl …"}]
    assert json.loads(said.out) == {"asked": 1, "back": 0, "left": ["demo-pd-0"], "blocked": kept}


def test_it_asks_nobody_where_the_feature_that_would_answer_is_off(monkeypatch):
    """D5: exit 4 with what to type; it would wait for ever."""
    made = Cluster(seed=1)
    made.store.create(Kind.POD, {"metadata": {"namespace": "shop", "name": "web"}, "spec": {"containers": []}})

    @asynccontextmanager
    async def connect(*_):
        yield made.api.as_client("person")

    monkeypatch.setattr("mooring.cli.restart.connect", connect)
    monkeypatch.setattr("mooring.cli.restart.ask", lambda *_: {"features": ["handoff"]})
    with pytest.raises(UserError, match="drain=true") as refused:
        restart("pod/web", namespace="shop")
    assert refused.value.code is Exit.UNREACHABLE
    assert RESTART not in podstate.annotations_of(made.store.get(Kind.POD, "shop", "web"))
