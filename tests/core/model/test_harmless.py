"""O1: what disturbs a pod, a node or a store passes through the queue. The types say so, so mypy refuses a capability
that tries it beside."""

import pytest
from mypy import api

from mooring.core.model.cluster import Taint
from mooring.core.model.instructions import EditTaints

CAPABILITY = """
from mooring.core.model.cluster import Key, Taint
from mooring.core.model.decision import Evaluation, NextStep
from mooring.core.model.instructions import AddEvictLeader, CutOff, DeletePod, EmitEvent, TransferPdLeader
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason

key = Key("shop", "web-1")
told = EmitEvent(kind=Kind.POD, key=key, uid="u", reason=Reason.ASKED, message="hello")
delete = DeletePod(key=key, uid="u")
"""
BESIDE = {
    "deletes a pod": "delete",
    "evicts a pod": "DeletePod(key=key, uid='u', evict=True)",
    "takes leaders off a store": "AddEvictLeader(cluster=key, store_id=4)",
    "sets NoExecute": "CutOff(node='n', uid='u', add=(Taint('a', 'NoExecute'),))",
    "moves PD's leadership": "TransferPdLeader(cluster=key, to='pd-1')",
}


def _mypy(tmp_path_factory, source):
    file = tmp_path_factory.mktemp("capability") / "capability.py"
    file.write_text(CAPABILITY + source)
    cache = tmp_path_factory.getbasetemp() / "mypy"
    said, wrong, code = api.run([str(file), "--strict", "--follow-imports=silent", f"--cache-dir={cache}"])
    return code, said + wrong


def test_mypy_refuses_a_disruption_beside_the_queue(tmp_path_factory):
    """One run for all of them: a line each, and each is refused for its argument alone."""
    lines = [f"Evaluation(instructions=({one},))  # {what}" for what, one in BESIDE.items()]
    fine = ["Evaluation(instructions=(told,))", "NextStep(step=0, instructions=(delete, told))"]
    code, said = _mypy(tmp_path_factory, "\n".join([*lines, *fine]))
    first = CAPABILITY.count("\n") + 1
    refused = [f'capability.py:{first + i}: error: Argument "instructions" to "Evaluation"' for i in range(len(lines))]
    assert code == 1 and all(one in said for one in refused), said
    assert said.count(" error: ") == len(lines), said


def test_no_execute_is_no_edit_of_taints():
    """O1: what the types cannot see in a taint's effect is refused when it is made."""
    EditTaints(node="n", uid="u", add=(Taint("a", "NoSchedule"),), remove=(Taint("a", "NoExecute"),))
    with pytest.raises(ValueError, match="NoExecute"):
        EditTaints(node="n", uid="u", add=(Taint("a", "NoExecute"),))
