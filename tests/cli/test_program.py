"""What is printed can be typed where the command was started from."""

import os
import sys

import pytest

from mooring.cli.output import runnable

SAID = "ask it: mooring why pod/x · kubectl -n mooring-system get pods · cordoned by mooring (op 1) · .venv/bin/mooring top"


@pytest.mark.parametrize(
    ("started", "on_path", "said"),
    [
        (".venv/bin/mooring", False, "ask it: .venv/bin/mooring why"),
        (".venv/bin/mooring", True, "ask it: mooring why"),
        ("/opt/mooring/bin/mooring", False, "ask it: /opt/mooring/bin/mooring why"),
        ("/usr/bin/kubectl-mooring", False, "ask it: kubectl mooring why"),
        ("/x/mooring/__main__.py", False, "ask it: mooring why"),
    ],
)
def test_our_commands_are_printed_as_they_work_here(monkeypatch, tmp_path, started, on_path, said):
    """After `make setup` only .venv/bin/mooring exists: the demo's hints must work as printed."""
    if on_path:
        program = tmp_path / "mooring"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) if on_path else os.devnull)
    monkeypatch.setattr(sys, "argv", [started])
    shown = runnable(SAID)
    assert shown.startswith(said)
    assert shown.endswith("kubectl -n mooring-system get pods · cordoned by mooring (op 1) · .venv/bin/mooring top")
