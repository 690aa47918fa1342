"""PD and TiDB members when others of them are unwell, or could not come back."""

import msgspec
import pytest

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, Mark, read_mark, write_mark
from mooring.core.model.reasons import Reason
from mooring.process.settings.config import from_file
from mooring_lab.cluster.pd.settings import PdSettings
from tests.capabilities.handoff.handoff_stage import NAME, NS, Stage

MEMBERS = tuple(f"{NAME}-pd-{i}" for i in range(3))


def stage(**how):
    return Stage(pd=3, tidb=2, nodes=6, settings=PdSettings(members=MEMBERS), **how)


def test_an_unhealthy_pd_member_is_a_member_away():
    """E9: its pod is Ready (there is no probe) and PD says that it is not well: another one away would end the quorum."""
    s = stage()

    async def scenario(s):
        real = s.pd.observe

        async def unwell():
            view = await real()
            members = tuple(
                msgspec.structs.replace(m, healthy=m.name.partition(".")[0] != "demo-pd-1") for m in view.members
            )
            return msgspec.structs.replace(view, members=members)

        s.pd.observe = unwell
        await s.rig.sleep(60)
        s.annotate("demo-pd-2", pd_transfer_leader="delete-pod")
        await s.rig.sleep(120)
        assert s.untouched("demo-pd-2")
        (waiting,) = s.rig.leader().engine.waiting.values()
        facts = s.rig.leader().engine.queue.why(waiting.id).facts
        assert any("demo-pd-1" in fact.detail for fact in facts)
        s.pd.observe = real
        await s.rig.until(lambda: s.renewed("demo-pd-2") and s.ready("pd") and s.clean(), limit_s=300)

    s.play(scenario)


@pytest.mark.parametrize(("part", "key"), [("pd", "pd_transfer_leader"), ("tidb", "tidb_graceful_shutdown")])
def test_another_member_lost_after_the_release(part, key):
    """E9: one is lost while the other is about to go: it waits for it, and they are never both away by our act."""
    s = stage()
    most = []

    async def scenario(s):
        s.cluster.pdb(NS, "all", {"app.kubernetes.io/component": part}, maxUnavailable=0)
        await s.rig.sleep(5)
        s.annotate(f"demo-{part}-0", **{key: "delete-pod"})
        await s.rig.until(lambda: s.running("restart-member") is not None, every_s=0.01)
        await s.rig.sleep(10)
        for node in [n["metadata"]["name"] for n in s.cluster.store.list(Kind.NODE)]:
            s.cluster.cordon(node)
        s.delete(f"demo-{part}-1")
        s.cluster.store.delete(Kind.PDB, NS, "all")
        await s.rig.sleep(60)
        assert s.untouched(f"demo-{part}-0")
        assert s.running("restart-member").waiting_on.reason == Reason.FACT
        for node in [n["metadata"]["name"] for n in s.cluster.store.list(Kind.NODE)]:
            s.cluster.cordon(node, on=False)

        def over():
            most.append(s.counts[part] - s.cluster.ready(NS, f"{NAME}-{part}"))
            return s.renewed(f"demo-{part}-0") and s.ready(part) and s.clean()

        await s.rig.until(over, limit_s=300)

    s.play(scenario)
    assert max(most) == 1


@pytest.mark.parametrize(
    "settings", [{"recheck-s": 0}, {"idle-s": -1}, {"prove-s": -1}, {"timeout-s": 0}, {"heartbeat-s": 0}]
)
def test_settings_that_cannot_be_meant_are_refused(settings):
    """A look every 0 s would ask PD without end: refused before anything starts, naming the setting."""
    with pytest.raises(msgspec.ValidationError, match=next(iter(settings))):
        from_file({"handoff": settings})


def test_one_look_is_no_proof_however_it_is_set():
    """E6: seen twice, also where zero need not last."""
    s = Stage(policy=HandoffPolicy(recheck_s=5.0, idle_s=20.0, young_pd_s=10.0, prove_s=0.0))
    looks = []

    async def scenario(s):
        s.annotate(0, restart="")
        await s.reach("evicting")
        await s.rig.until(lambda: s.leaders(1) == 0, every_s=0.01)
        evicts = s.running("evict-leaders")
        world = s.rig.leader().engine.world

        def zeros():
            at = world.pd_observed_at(Key(NS, NAME))
            if at not in looks and world.pd(Key(NS, NAME)).stores[0].leader_count == 0:
                looks.append(at)
            return evicts.step == 1

        await s.rig.until(zeros, every_s=0.01)

    s.play(scenario)
    assert len(looks) >= 2


def test_a_pd_member_whose_volume_is_bound_to_a_cordoned_node_stays():
    """E4, E9: deleted it could come back nowhere: held with the reason and the command, others do not wait for it."""
    s = stage(storage="local")

    async def scenario(s):
        node = s.pod("demo-pd-1")["spec"]["nodeName"]
        s.cluster.cordon(node)
        await s.rig.sleep(5)
        s.annotate("demo-pd-1", pd_transfer_leader="delete-pod")
        await s.rig.sleep(60)
        assert s.untouched("demo-pd-1")
        ((reason, message),) = s.warnings("demo-pd-1")
        assert reason == "LocalVolume"
        assert f"kubectl uncordon {node}" in message
        s.cluster.cordon(node, on=False)
        await s.rig.until(lambda: s.renewed("demo-pd-1") and s.ready("pd") and s.clean(), limit_s=300)

    s.play(scenario)


def test_a_mark_that_was_copied_is_written_anew_before_the_member_goes():
    """E5: a template hands a copy of another pod's mark to the member: right before it is deleted, its own mark is
    written, or the next leader would not know whose deletion this was."""
    s = stage()
    seen = []

    async def scenario(s):
        copy = Mark(operator="7", source="handoff", reason="asked", step="DeletePod", since=1.0, pod_uid="another")
        s.cluster.annotate(Kind.POD, NS, "demo-tidb-0", {LEAVING: write_mark(copy)})
        s.annotate("demo-tidb-0", tidb_graceful_shutdown="delete-pod")

        def over():
            pod = s.cluster.store.find(Kind.POD, NS, "demo-tidb-0")
            if pod is not None and pod["metadata"].get("deletionTimestamp"):
                seen.append(read_mark(pod["metadata"]["annotations"][LEAVING]).pod_uid == pod["metadata"]["uid"])
            return s.renewed("demo-tidb-0") and s.ready("tidb")

        await s.rig.until(over, limit_s=300, every_s=0.05)
        assert seen and all(seen)

    s.play(scenario)
