"""A snapshot out of a trace of SimKube."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mooring.core.model.kinds import Kind
from mooring_lab.cluster.controllers import manifests
from mooring_lab.rehearse.snapshot.schema import BadSnapshotError
from mooring_lab.rehearse.snapshot.simkube import MadeNodes, import_trace
from tests import program
from tests.rehearse.test_play import play

GVK = {"group": "apps", "version": "v1", "kind": "Deployment"}


def _deployment(name: str, replicas: int) -> dict[str, Any]:
    made = manifests.deployment("shop", name, replicas, manifests.pod_template({"app": name}, cpu="1", memory="1Gi"))
    made["metadata"] |= {"uid": "theirs", "resourceVersion": "7", "generation": 4}
    return {**made, "status": {"replicas": 99}}


def _trace(path: Path, **more: Any) -> Path:
    """As SimKube 2 writes it: maps by name, and lifecycles of pods under keys that are no strings."""
    rollout = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"namespace": "shop", "name": "r"}}
    events = [
        {"ts": 1000, "applied_objs": [_deployment("web", 2), _deployment("old", 1), rollout], "deleted_objs": []},
        {"ts": 1600, "applied_objs": [_deployment("web", 6)], "deleted_objs": [_deployment("old", 1)]},
    ]
    trace = {"version": 2, "config": {"trackedObjects": {}}, "events": events, "index": {}, **more}
    body = msgspec.msgpack.encode(
        {**trace, "pod_lifecycles": {("apps/v1.Deployment", "shop/web"): {1: [[1000, 1600]]}}}
    )
    path.write_bytes(body)
    return path


def test_the_workloads_of_a_trace_stand_on_made_up_nodes_and_can_be_rehearsed(tmp_path: Path) -> None:
    """O4: as of its end, or of a moment in it; whatever is not played is said."""
    path = _trace(tmp_path / "t.sktrace")
    snapshot = import_trace(path, MadeNodes(count=3))
    assert {(one["metadata"]["name"], one["spec"]["replicas"]) for one in snapshot.of(Kind.DEPLOYMENT)} == {("web", 6)}
    assert all(pod["spec"]["nodeName"] for pod in snapshot.of(Kind.POD)) and len(snapshot.of(Kind.POD)) == 6
    assert "1 Rollout of the trace left out: not played" in snapshot.remarks
    assert play(snapshot, "node-lost n0").answer.startswith("HOLDS: 1 workload short for a while")
    before = import_trace(path, MadeNodes(count=3), after_s=60.0)
    assert {one["metadata"]["name"] for one in before.of(Kind.DEPLOYMENT)} == {"web", "old"}


@pytest.mark.parametrize(("body", "words"), [(b"{}", "not a trace of SimKube"), (None, "format 9; format 2 and 3")])
def test_what_is_no_such_trace_is_refused_in_a_sentence(tmp_path: Path, body: bytes | None, words: str) -> None:
    """O4: never a traceback."""
    path = _trace(tmp_path / "t.sktrace", version=9)
    if body is not None:
        path.write_bytes(body)
    with pytest.raises(BadSnapshotError, match=words):
        import_trace(path, MadeNodes())


def test_the_command_writes_a_snapshot_and_says_what_is_made_up(tmp_path: Path) -> None:
    """O4: notes on stderr, exit 0."""
    path, made = _trace(tmp_path / "t.sktrace"), tmp_path / "made.json"
    done = program.mooring("rehearse", "import", str(path), "--to", str(made), "--nodes", "4", "--spot", "50")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "the nodes are made up: 4 with cpu 16" in done.stderr and "4 Nodes" in done.stderr
    done = program.mooring("rehearse", "import", str(path), "--to", str(made), "--cpu", "lots")
    assert done.returncode == 2 and "--cpu lots: not a quantity" in done.stderr
