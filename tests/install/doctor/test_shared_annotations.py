"""Who acts on the annotations that Mooring and tidb-operator both know."""

import pytest

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.model.tidb import TidbCluster
from mooring.install.doctor.running import shared_annotations

KEPT = TidbCluster("tidb", "demo", "u1", "1", tikv_phase="Normal")
OURS = TidbCluster("tidb", "other", "u2", "1")


@pytest.mark.parametrize(
    ("leave", "code", "words"),
    [
        (False, "MO603", "both act on evict-leader"),
        (True, "", "left to the tidb-operator that keeps tidb/demo"),
        ("auto", "", "what it has not begun within 10 s, Mooring does"),
    ],
)
def test_who_acts_is_told(leave, code, words):
    """E3: found out by doctor; only false lets both act, and that is a warning."""
    (finding,) = shared_annotations([KEPT, OURS], HandoffPolicy(leave_to_tidb_operator=leave))
    assert (finding.code or "") == code
    assert words in f"{finding.what} {finding.seen}"
    assert shared_annotations([OURS], HandoffPolicy(leave_to_tidb_operator=leave)) == []
