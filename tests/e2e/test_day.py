"""`mooring demo --on lab`: the day on the real control plane, as a person starts and stops it.

The whole day takes some six minutes and is its own check (`mooring demo --on lab` exits by its table); here the first
act is played, and the rest is stopped.
"""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from mooring_lab.control.binaries import cache_dir, release
from mooring_lab.control.loopback import free_ports

pytestmark = pytest.mark.e2e

MOORING = Path(sys.executable).parent / "mooring"


@pytest.fixture
def elsewhere(tmp_path):
    """A home and a place for temporary files with nothing in them; the programs are found where they are."""
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    env = {**os.environ, "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp"), "NO_COLOR": "1"}
    env["XDG_CACHE_HOME"] = str(cache_dir(release()).parents[2])
    env.pop("KUBECONFIG", None)
    return tmp_path, env


def start(elsewhere, *arguments, **env):
    return subprocess.Popen(
        [MOORING, "demo", "--on", "lab", *arguments],
        cwd=elsewhere[0],
        env={**elsewhere[1], **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def running_in(directory):
    """Processes that have this directory on their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in words:
            found.append(words)
    return found


def test_the_same_acts_on_the_real_control_plane_and_nothing_left(elsewhere):
    """H1, H5, H8 by the demo's own checks on a real kube-scheduler; Ctrl-C: the table, exit 1, no file, no process."""
    (port,) = free_ports(1)
    process = start(elsewhere, "--port", str(port))
    assert process.stderr is not None
    told = [process.stderr.readline() for _ in range(3)]
    assert told[0].startswith("Mooring demo: the same day on a real control plane, Kubernetes v1.")
    assert told[2].startswith("Ctrl-C stops.")
    head = {}
    while not (line := process.stderr.readline()).lstrip().startswith(("ok", "FAIL")):
        assert line, f"it ended by itself: {told}"
        told.append(line)
        if line.startswith("1/7 "):  # at its beginning: the next act follows three seconds after its end
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/frame", timeout=60) as answer:
                head = json.load(answer)["head"]
    told.append(line)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert line.lstrip().startswith("ok  3 new UIDs, 3 same nodes"), told
    assert head["cluster"] == "demo on the lab"
    assert (head["act"]["number"], head["act"]["of"], head["act"]["title"]) == (1, 7, "TiDB rolling update"), head
    assert "Traceback" not in err
    assert "Leftovers: none" in err
    assert "PROMISES   5 shown, 5 kept" in out
    assert out.count("not played") == 6
    assert process.returncode == 1
    assert [str(p) for p in elsewhere[0].rglob("*") if p.is_file()] == []
    assert running_in(elsewhere[0]) == []


def test_without_the_programs_it_says_what_would_be_right(elsewhere, tmp_path):
    """Exit 4, one sentence with the command that builds them; nothing is begun."""
    process = start(elsewhere, XDG_CACHE_HOME=str(tmp_path / "nothing"), MOORING_BIN_DIR=str(tmp_path))
    out, err = process.communicate(timeout=300)
    assert process.returncode == 4
    assert "mooring lab build" in err
    assert "Traceback" not in err
    assert out == ""


def test_the_lab_has_no_short_form(elsewhere):
    """Exit 2: the lab lives on the wall clock, and the message says so."""
    process = start(elsewhere, "--short")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "--short" in err
