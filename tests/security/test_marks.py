"""Marks that somebody else wrote: each counts only where we wrote it, and reaches no other namespace."""

import json

import msgspec
import pytest

from mooring.capabilities.drain.request import HASH, is_detached, request_of
from mooring.capabilities.handoff.operators import marks_of, names_of_no_member
from mooring.capabilities.mix.rebalance.detached import DetachedPods
from mooring.core.model.cluster import Owner, Pod, PodShape, Workload
from mooring.core.model.events import Change, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, LEAVING, Mark, leaving, read_mark, read_marks, write_mark, write_marks
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.world import World
from mooring_lab.stage.scenarios.mix import NAMESPACE, left_behind, physical, slow_template
from tests.capabilities.mix.rebalance.mix_stage import Stage

BEFORE = {"workload": "Deployment/shop/web", "workloadUID": "web-uid", HASH: "abc", "replicaSet": "web-abc"}


def mark(pod_uid: str, **before: str) -> Mark:
    return Mark(
        operator="7", source="spot", reason="notice", step="x", since=0.0, pod_uid=pod_uid, before={**BEFORE, **before}
    )


def pod(namespace: str, uid: str, written: Mark, label: str = "abc-leaving") -> Pod:
    shape = PodShape(labels={HASH: label})
    return Pod(
        namespace, f"web-{uid}", uid, "1", shape, node="n1", phase="Running", annotations={LEAVING: write_mark(written)}
    )


def test_a_decoy_in_another_namespace_replaces_nobody():
    """mooring.dev/leaving: a Ready pod elsewhere with a forged mark made the victim's only serving pod go."""
    world, index = World(), DetachedPods()
    web = Workload(Kind.DEPLOYMENT, "shop", "web", "web-uid", "1")
    world.apply(Seen(Kind.DEPLOYMENT, web))
    rows = {
        "ours": pod("shop", "a", mark("a")),
        "elsewhere": pod("tenant", "b", mark("b")),
        "copied": pod("shop", "c", mark("a")),
        "of another workload": pod("shop", "d", mark("d", workloadUID="old-uid")),
        "not detached": pod("shop", "e", mark("e"), label="abc"),
        "another label": pod("shop", "f", mark("f"), label="xyz-leaving"),
        "owned": msgspec.structs.replace(pod("shop", "g", mark("g")), owner=Owner("ReplicaSet", "r", "r-uid")),
    }
    for row in rows.values():
        world.apply(Seen(Kind.POD, row))
        index.observe(Change(Kind.POD, row.key, None, row), world)
    assert index.of(web) == (rows["ours"],)
    assert is_detached(rows["ours"]) and not is_detached(rows["elsewhere"])
    assert request_of(rows["copied"]) is None, "a template hands its annotations to every pod"


@pytest.mark.parametrize("before", [{}, {"workload": ""}, {"workload": "x"}, {"workload": "a/b/c/d"}, {HASH: "abc"}])
def test_a_mark_that_lacks_what_ours_have_is_not_ours(before):
    """mooring.dev/leaving: a forged mark without our keys is no reason to fail (KeyError), nor to act."""
    written = msgspec.structs.replace(mark("a"), before=before)
    assert not is_detached(pod("shop", "a", written))


def test_only_members_of_the_cluster_itself_count():
    """mooring.dev/handoff: whoever may edit a TidbCluster names other pods and stores; they are swept, not followed."""
    told = Mark(operator="7", source="handoff", reason="asked", step="x", since=0.0, pod_uid="u", store_id=4)
    names = ("demo-tikv-0", "bank-tikv-0", "demo-tikv-x", "demo-pd-0", "web-5d9", "demo-tikv-", "")
    text = write_marks(dict.fromkeys(names, told) | {"demo-tikv-1": msgspec.structs.replace(told, store_id=0)})
    tc = TidbCluster("tidb", "demo", "u", "1", annotations={HANDOFF: text})
    marks = marks_of(tc)
    assert marks == {"demo-tikv-0": told}
    assert set(names_of_no_member(tc, marks)) == {*names, "demo-tikv-1"} - {"demo-tikv-0"}


@pytest.mark.parametrize("field", ["operator", "detail", "reason", "node", "source", "pod"])
def test_what_a_terminal_obeys_is_in_no_mark(field):
    """`why` prints marks: one with ESC or CR in it is not read."""
    forged = json.loads(write_mark(mark("a"))) | {field: "x\x1b[2J\rpwned"}
    assert read_mark(json.dumps(forged)) is None
    assert read_marks(json.dumps({"demo-tikv-0": forged})) is None
    assert read_marks(json.dumps({"demo\x1b": json.loads(write_mark(mark("a")))})) is None


def test_marks_have_a_limit():
    """An annotation holds 256 KiB: what is longer than any mark of ours is not read."""
    assert read_mark(write_mark(mark("a", room="x" * 100_000))) is None
    assert leaving(pod("shop", "a", mark("a"))) is not None


def test_on_a_notice_a_decoy_elsewhere_costs_the_victim_nothing():
    """M8: a Ready pod of another namespace with a forged mark; the victim's only serving pod still waits for its own
    replacement."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.service(NAMESPACE, "one", {"app": "one"})
        await stage.deployed("one", 1, "all-in-spot", template=slow_template("one", 20))
        (victim,) = stage.cluster.store.list(Kind.DEPLOYMENT)
        before = {"workload": f"Deployment/{NAMESPACE}/one", "workloadUID": victim["metadata"]["uid"], HASH: "x"}
        template = slow_template("decoy", 1)
        template["spec"]["nodeSelector"] = {"node.kubernetes.io/capacity": "on-demand"}
        stage.cluster.deployment("tenant", "decoy", 1, template=template)
        await stage.rig.sleep(30)
        (decoy,) = stage.cluster.store.list(Kind.POD, "tenant")
        forged = mark(decoy["metadata"]["uid"], **before)
        patch = {"labels": {HASH: "x-leaving"}, "ownerReferences": None, "annotations": {LEAVING: write_mark(forged)}}
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.until(lambda: left_behind(stage.rig) != [], every_s=0.05)
        await stage.cluster.api.patch(Kind.POD, "tenant", decoy["metadata"]["name"], {"metadata": patch})
        fewest = 1
        for _ in range(480):
            await stage.rig.sleep(0.25)
            fewest = min(fewest, len(stage.cluster.ready_nodes(NAMESPACE, "one")))
        assert fewest == 1
        assert physical(stage.rig, "one") == ["on-demand"]

    Stage(on_demand=2, spot=2).play(scenario)
