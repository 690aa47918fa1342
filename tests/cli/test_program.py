"""What is printed can be typed where the command was started from."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mooring.cli.output import runnable
from tests.program import mooring

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


def test_ctrl_c_before_the_command_has_begun_is_no_traceback():
    """Importing takes half a second; a person may have changed their mind by then."""
    code = (
        "import builtins, sys\n"
        "def pressed(name, *more, load=builtins.__import__):\n"
        "    if name == 'cyclopts': raise KeyboardInterrupt\n"
        "    return load(name, *more)\n"
        "from mooring.__main__ import main\n"
        "builtins.__import__ = pressed\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("args", "stdin"),
    [
        (("demo", "--short", "--blackbox", "/etc/passwd"), ""),
        (("demo", "--port", "99999"), ""),
        (("queue", "replay", "-"), "garbage\n\n"),
        (("queue", "replay", "-"), "\x00\x01"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_refused_at_once(args, stdin):
    """Bad input is exit 2 with a sentence, before anything is played."""
    done = mooring(*args, stdin=stdin)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and "bind()" not in done.stderr


def test_the_installed_command_may_start_processes_of_its_own():
    """A process that `mooring sim --jobs 2` starts imports the installed command again; that must not run it again."""
    command = [Path(sys.executable).with_name("mooring"), "sim", "--seeds", "1..2", "--hours", "0.02", "--jobs", "2"]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, timeout=300, check=False)
    assert json.loads(done.stdout)["seeds"] == 2, done.stderr
