"""`why` names who asked, where the API server noted it."""

import pytest

from mooring.core.engine.why import Explanation
from mooring.core.model.decision import Line
from mooring.core.model.reasons import Reason, State
from mooring.process.http.why import AskingAnnotation, annotation_behind, manager_of, with_asker

RESTART = "tidb.pingcap.com/restart"


def answered(subject, asked):
    lines = (Line("asked", asked), Line("queued", "op 2")) if asked else (Line("queued", "op 2"),)
    return Explanation(subject=subject, state=State.WAITING, reason=Reason.ASKED, answer="it waits", lines=lines)


@pytest.mark.parametrize(
    ("subject", "asked", "asking"),
    [
        (
            "pod/tidb/demo-tikv-1",
            f"restart by annotation {RESTART}",
            AskingAnnotation("pod", "tidb", "demo-tikv-1", RESTART),
        ),
        (
            "pod/tidb/demo-tikv-1",
            "leaders off by annotation tidb.pingcap.com/evict-leader=none",
            AskingAnnotation("pod", "tidb", "demo-tikv-1", "tidb.pingcap.com/evict-leader"),
        ),
        (
            "pod/shop/web-1",
            "annotation vacant.io/interrupt-at on s0",
            AskingAnnotation("node", "", "s0", "vacant.io/interrupt-at"),
        ),
        ("node/n1", "its machine is RETIRING", None),
        ("pod/shop/web-1", "custom 3 wants 3 of 5 on on-demand, has 2", None),
        ("pod/shop/web-1", "", None),
    ],
)
def test_the_annotation_behind_an_answer(subject, asked, asking):
    """O3: what asked is found in the answer's own line, also when it stands on another object."""
    assert annotation_behind(answered(subject, asked)) == asking


def test_the_manager_of_one_annotation_is_named_and_no_other():
    """O3: field managers are noted per field: only the one that wrote this annotation counts."""
    fields = [
        {"manager": "kube-controller-manager", "time": "2026-01-01T09:00:00Z", "fieldsV1": {"f:spec": {}}},
        {
            "manager": "argocd",
            "time": "2026-01-01T09:30:00Z",
            "fieldsV1": {"f:metadata": {"f:annotations": {"f:team": {}}}},
        },
        {
            "manager": "kubectl-annotate",
            "time": "2026-01-01T10:02:11Z",
            "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{RESTART}": {}}}},
        },
    ]
    assert manager_of(fields, RESTART) == ("kubectl-annotate", "2026-01-01T10:02:11Z")
    assert manager_of(fields, "tidb.pingcap.com/evict-leader") == ("", "")
    assert manager_of([{"manager": "old", "fieldsV1": None}], RESTART) == ("", "")


def test_the_line_says_when_and_by_whom_and_the_rest_stays():
    """Sketch B: restart by annotation …, 10:02:11, field manager kubectl-annotate."""
    before = answered("pod/tidb/demo-tikv-1", f"restart by annotation {RESTART}")
    after = with_asker(before, "kubectl-annotate", "2026-01-01T10:02:11Z")
    assert after.lines[0].text == f"restart by annotation {RESTART}, 10:02:11, field manager kubectl-annotate"
    assert after.lines[1:] == before.lines[1:]
    assert with_asker(before, "kubectl-annotate", "").lines[0].text.endswith("/restart, field manager kubectl-annotate")
