"""Labels, annotations and taints on one live Node, and the stored ledger, without a cluster around them."""

import msgspec
import pytest

from mooring.capabilities.fleet.live.ledger import EMPTY, Decisions, Member, StoredCluster, next_data, read_ledger
from mooring.capabilities.fleet.live.node_metadata import APPLIED, bring_up_to_date
from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.fleet.planner.labels import Renderer
from mooring.capabilities.fleet.planner.plan import PlanChange, Verb
from mooring.core.model.cluster import ConfigMap, Node, Owner, Pod, PodShape, Taint
from mooring.core.model.instructions import EditTaints, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason, State
from tests.capabilities.fleet.fleet_making import NOW, m, template


def wanted(**how):
    how = {"control_plane": False, "state_taint": None, **how}
    return Renderer(template()).node(m(4, rack=2), **how)


def written(node, want):
    """The node after everything was brought up to date, and how many writes that took."""
    for count in range(10):
        upkeep = bring_up_to_date(node, want, tuple)
        write = upkeep.write
        if write is None and not upkeep.cut_off:
            return node, count
        if isinstance(write, Patch):
            change = write.patch["metadata"]
            labels = _merged(node.labels, change.get("labels", {}))
            annotations = _merged(node.annotations, change.get("annotations", {}))
            node = msgspec.structs.replace(node, labels=labels, annotations=annotations)
        else:
            assert write is None or isinstance(write, EditTaints)
            add, remove = (upkeep.cut_off, ()) if write is None else (write.add, write.remove)
            gone = {(t.key, t.effect) for t in (*add, *remove)}
            taints = (*(t for t in node.taints if (t.key, t.effect) not in gone), *add)
            node = msgspec.structs.replace(node, taints=taints)
    raise AssertionError("no end")


def _merged(old, change):
    return {k: v for k, v in {**old, **change}.items() if v is not None}


def test_a_node_is_brought_up_to_date_once():
    """F8, F9: one write for labels and annotations, one for taints; then nothing more."""
    node, writes = written(Node("10.69.0.4", "u", "1"), wanted(state_taint=("retiring", "NoExecute")))
    assert writes == 2
    assert node.labels[keys.ZONE] == "rack2"
    assert node.annotations[keys.SERIAL] == "S4"
    assert node.taints == (Taint(keys.STATE_TAINT, "NoExecute", "retiring"),)
    upkeep = bring_up_to_date(node, wanted(state_taint=("retiring", "NoExecute")), tuple)
    assert (upkeep.write, upkeep.cut_off, upkeep.held) == (None, (), None)


def test_the_state_taint_waits_for_pods_that_it_would_cut_off():
    """O2: it was stored when the node looked empty, a late watch showed a pod, and a person uncordoned the node: the taint
    came onto the occupied node. It waits, and is written only if a live list shows nobody; what already carries it, and
    machines that retire at once, do not wait."""
    want = wanted(state_taint=("retiring", "NoExecute"))
    node, _ = written(Node("10.69.0.4", "u", "1"), wanted())
    shape, daemon = PodShape(), Owner(Kind.DAEMON_SET, "agent", "d")
    web = Pod("shop", "web-0", "u1", "1", shape, node=node.name, ready=True)
    agent = Pod("shop", "agent-x", "u2", "1", shape, node=node.name, ready=True, owner=daemon)
    waits = bring_up_to_date(node, want, lambda: (web, agent))
    assert (waits.write, waits.cut_off) == (None, ())
    held = waits.held
    assert (held.state, held.reason) == (State.BLOCKED, Reason.NO_EXECUTE) and "would cut off web-0" in held.detail
    alone = bring_up_to_date(node, want, lambda: (agent,))
    assert (len(alone.cut_off), alone.may_cut_off, alone.held) == (1, (), None)
    at_once = bring_up_to_date(node, want, lambda: (web,), immediate=True)
    assert (len(at_once.cut_off), at_once.may_cut_off, at_once.held) == (1, None, None)
    retired = msgspec.structs.replace(node, taints=at_once.cut_off)
    upkeep = bring_up_to_date(retired, wanted(state_taint=("retired", "NoExecute")), lambda: (web,))
    assert (upkeep.cut_off[0].value, upkeep.may_cut_off, upkeep.held) == ("retired", None, None)


def test_a_demoted_node_loses_the_control_planes_labels_and_keeps_others():
    """F8: `master` and `control-plane` go, a label of somebody else stays."""
    node, _ = written(Node("n", "u", "1", labels={"team": "blue"}), wanted(control_plane=True))
    assert keys.MASTER_ROLE in node.labels
    node, _ = written(node, wanted())
    assert keys.MASTER_ROLE not in node.labels
    assert keys.CONTROL_PLANE_ROLE not in node.labels
    assert node.labels["team"] == "blue"


def test_a_lifted_state_leaves_other_taints():
    """F9: `cke.cybozu.com/state` follows the stored cluster, whoever set it; other keys are not ours."""
    taints = (Taint(keys.STATE_TAINT, "NoExecute", "retiring"), Taint("other.io/x", "NoSchedule"))
    node, _ = written(Node("n", "u", "1", taints=taints), wanted())
    assert node.taints == (Taint("other.io/x", "NoSchedule"),)


@pytest.mark.parametrize("broken", ["{", '{"else": ' + "[" * 3000 + "]" * 3000 + "}"])
def test_an_unreadable_note_of_ours_is_written_anew(broken):
    """What we applied is noted on the node; a note that somebody broke costs a write, not the node."""
    node, _ = written(Node("n", "u", "1", annotations={APPLIED: broken}), wanted())
    assert node.annotations.get(APPLIED, broken) != broken


def test_the_ledger_reads_back_what_it_wrote_and_forgets_the_oldest():
    """F9: decisions with their revision, what is pending, and a bounded history."""
    ledger, changes = EMPTY, [PlanChange("10.0.0.1", "S1", Verb.ADD, "score 1000")]
    for number in range(5):
        members = tuple(Member(f"10.0.0.{n}", n == 0, None, f"S{n}") for n in range(number + 1))
        data = next_data(ledger, Decisions("r", members), "increase-workers", changes, NOW, keep=3)
        made = read_ledger(ConfigMap("own", "x", "u", str(number), data=data))
        assert isinstance(made, StoredCluster)
        ledger = made
    assert ledger.revision == 5
    assert [e.revision for e in ledger.history] == [3, 4, 5]
    assert ledger.pending.added["10.0.0.4"] == NOW, "and what came before is not forgotten until it has settled"
    old = {**ledger.object.data, "pending.json": '{"at": 7.0, "added": ["10.0.0.4"]}'}
    read = read_ledger(ConfigMap("own", "x", "u", "9", data=old))
    assert isinstance(read, StoredCluster) and read.pending.added == {"10.0.0.4": 7.0}, "as 0.2 wrote it"
    assert len(ledger.members) == 5


def test_a_ledger_that_is_not_ours_is_a_sentence():
    """Nothing is guessed at: an unreadable object is reported and left alone."""
    found = read_ledger(ConfigMap("own", "x", "u", "1", data={"decisions": "{"}))
    assert isinstance(found, str)
    assert "own/x" in found
