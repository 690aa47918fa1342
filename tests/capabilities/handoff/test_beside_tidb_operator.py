"""Handoff beside a stand-in for tidb-operator v1.6 that does all it does: rewrites the status from its own types, acts on
`evict-leader`, upgrades TiKV by itself with evictions of its own, and ends evictions that it did not begin."""

import pytest

from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason, State
from mooring_lab.cluster.pd.settings import PdSettings
from tests.capabilities.handoff.handoff_stage import BEFORE, NAME, NS, Stage


def strict(**how):
    stage = Stage(**{"tikv": 3, "nodes": 5, "settings": PdSettings(transfer_s=(3.0, 6.0)), **how})
    stage.cluster.tidb_operator.upgrades.acts = True
    stage.cluster.tidb_evictions.acts = True
    return stage


def upgrade(s):
    """A new image in the TidbCluster: every TiKV pod is to be replaced."""
    s.cluster.change(Kind.TIDB_CLUSTER, NS, NAME, lambda tc: {**tc, "spec": {**tc["spec"], "version": "v8.5.1"}})


def upgraded(s):
    part = s.cluster.store.get(Kind.STATEFUL_SET, NS, f"{NAME}-tikv")["status"]
    return part["currentRevision"] == part["updateRevision"] and all(map(s.renewed, range(s.counts["tikv"])))


def test_it_upgrades_by_itself_without_an_interruption():
    """The stand-in is worth standing beside: left alone, no member goes with leaders on it, and nothing stays."""
    stage = strict()

    async def scenario(s):
        upgrade(s)
        await s.rig.until(lambda: upgraded(s) and s.ready() and not s.evicting(), limit_s=900)

    stage.play(scenario)
    assert stage.deletions() == []
    assert stage.pd.interruptions == []
    assert stage.most_away == 1


@pytest.mark.parametrize("after_s", [1.0, 12.0, 25.0, 60.0])
def test_a_restart_asked_for_while_it_upgrades_another_store(after_s):
    """E3, E7: it waits, says for whom, and is done when the upgrade is: never two away, nothing left."""
    stage = strict()
    said = []

    async def scenario(s):
        upgrade(s)
        await s.rig.sleep(after_s)
        s.annotate(0, restart="")
        await s.rig.sleep(3)
        said.append(s.verdict())
        await s.rig.until(lambda: upgraded(s) and s.renewed(0) and s.ready() and s.clean(), limit_s=900)

    stage.play(scenario)
    assert [(v.state, v.reason) for v in said] == [(State.WAITING, Reason.SETTLING)]
    assert "tidb-operator" in said[0].detail
    assert stage.pd.interruptions == []
    assert stage.most_away == 1


@pytest.mark.parametrize("phase", BEFORE)
def test_an_upgrade_that_begins_midway(phase):
    """E3, E7: what has not deleted anything yet stands back: leaders return, the upgrade gets on, and nothing is left."""
    stage = strict()

    async def scenario(s):
        s.annotate(0, restart="")
        await s.reach(phase)
        upgrade(s)
        await s.rig.until(lambda: upgraded(s) and s.ready() and s.clean(), limit_s=900)

    stage.play(scenario)
    assert stage.pd.interruptions == []
    assert stage.most_away == 1


def test_two_at_once_and_evict_leader_beside_it():
    """E3, E7: two restarts go one after the other, `evict-leader` is tidb-operator's, and ends with the annotation."""
    stage = strict(tikv=5, nodes=7)

    async def scenario(s):
        s.annotate(4, evict_leader="none")
        s.annotate(0, restart="")
        s.annotate(1, restart="")
        await s.rig.until(lambda: s.renewed(0) and s.renewed(1) and s.ready() and not s.marks(), limit_s=600)
        assert s.evicting() == (5,)
        s.annotate(4, evict_leader=None)
        await s.rig.until(s.clean, limit_s=120)

    stage.play(scenario)
    assert stage.deletions() == ["tidb/demo-tikv-0", "tidb/demo-tikv-1"]
    assert stage.pd.interruptions == []
    assert stage.most_away == 1
