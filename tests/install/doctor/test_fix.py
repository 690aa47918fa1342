"""`mooring doctor --fix`: one script of all fixes, printed and never run; and where to read about a code."""

import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from mooring.core.model.finding import ill, well
from mooring.install.doctor.codes import codes as known_codes
from mooring.install.doctor.codes import see
from mooring.install.doctor.text import script

RIGHTS = "mooring manifests --features mix=true --rights | kubectl apply -f -"
FINDINGS = [
    well("cluster", "fine"),
    ill("rights", "MO202", "rights of mix", "may not patch pods", RIGHTS),
    ill(
        "pd",
        "MO601",
        "PD of tidb/demo answers",
        "refused",
        "mooring run --pd tidb/demo=http://…:2379, or an annotation",
    ),
    ill("pd", "MO602", "schedulers", "store 1", "pd-ctl scheduler remove evict-leader-scheduler-1   (or cleanup)"),
    ill("cluster", "MO101", "API server", "refused", "kubectl version   (then --kubeconfig)"),
]
BLOCKED = {
    "answer": "web is blocked: pdb/web allows 0 disruptions; a person must act.",
    "lines": [
        {"label": "now", "text": "5 of 5"},
        {"label": "to change", "text": "look at     kubectl -n shop get pdb web"},
        {"label": "to change", "text": "one more    kubectl -n shop scale deployment/web --replicas 6"},
    ],
}


def test_what_can_be_run_is_a_line_and_the_rest_a_comment():
    """Rights and schedulers are commands; what has to be filled in, looked at or chosen is for a person."""
    lines = script(FINDINGS, [BLOCKED])
    assert [line for line in lines if line and not line.startswith("#")] == [
        "set -eu",
        RIGHTS,
        "pd-ctl scheduler remove evict-leader-scheduler-1",
    ]
    assert "# by hand: mooring run --pd tidb/demo=http://…:2379, or an annotation" in lines
    assert "# one more    kubectl -n shop scale deployment/web --replicas 6" in lines
    assert lines[-1] == "# 5 to fix"


def test_it_is_a_script_that_a_shell_reads():
    """Nothing of what was seen can leave its comment."""
    evil = ill("marks", "MO701", "pod", "x\n$(touch /tmp/never)", "kubectl annotate pod x key-")
    for found in (FINDINGS, [evil], []):
        text = "\n".join(script(found, [BLOCKED]))
        assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
    assert all(line.startswith("#") for line in script([evil]) if "touch" in line)


def test_where_to_read_is_an_address_that_opens():
    """Each code's address names a file that is there, and a heading in it."""
    for code in known_codes():
        address = urlsplit(see(code))
        text = Path(address.path).read_text()
        assert f"## {address.fragment.upper()}\n" in text
