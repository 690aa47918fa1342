"""Who acts on the annotations that Mooring and tidb-operator both know."""

import msgspec
import pytest

from mooring.capabilities.handoff.descriptor import bare_stores, namesakes, shared_annotations
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


def test_a_bare_store_id_with_several_clusters_is_a_warning():
    """T8: it would be a store of each of them; the whole name, or a single cluster, is well."""
    clusters = (KEPT, OURS)
    bare = Examined(config=Config(queue={"StoreMaxScheduleCost": {"1": 5}}), on=True, clusters=clusters)
    (finding,) = bare_stores(bare)
    assert (finding.code, '"tidb/demo/1"' in finding.fix) == ("MO604", True)
    assert list(bare_stores(msgspec.structs.replace(bare, clusters=(KEPT,)))) == []
    named = Config(queue={"StoreMaxScheduleCost": {"tidb/demo/1": 5}})
    assert list(bare_stores(Examined(config=named, on=True, clusters=clusters))) == []


def test_two_clusters_of_one_name_are_a_warning():
    """E12: during a migration to tidb-operator v2 nobody can tell whose a pod is; nothing is guarded there."""
    v2 = TidbCluster("tidb", "demo", "u3", "1", v2=True)
    both = Examined(config=Config(), on=True, clusters=(KEPT, v2))
    (finding,) = namesakes(both)
    assert finding.code == "MO606" and "delete" not in finding.fix
    assert list(namesakes(msgspec.structs.replace(both, clusters=(OURS, v2)))) == []
