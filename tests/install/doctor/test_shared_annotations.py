"""Who acts on the annotations that Mooring and tidb-operator both know."""

import pytest

from mooring.capabilities.handoff.examine import shared_annotations
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.model.descriptor import Examined
from mooring.core.model.tidb import TidbCluster
from mooring.process.settings.config import Config

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
    config = Config(policies=(HandoffPolicy(leave_to_tidb_operator=leave),))
    (finding,) = shared_annotations(Examined(config=config, on=True, clusters=(KEPT, OURS)))
    assert (finding.code or "") == code
    assert words in f"{finding.what} {finding.seen}"
    assert list(shared_annotations(Examined(config=config, on=True, clusters=(OURS,)))) == []
    assert list(shared_annotations(Examined(config=config, on=False, clusters=(KEPT,)))) == []
