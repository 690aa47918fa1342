"""`mooring rehearse sweep` as a user and a pipeline meet it."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cli.test_rehearse import mooring, snapshot

__all__ = ["snapshot"]


def test_a_sweep_prints_the_weakest_point_first_and_counts_last(snapshot: Path) -> None:
    """O7: exit 1 when something would break; data on stdout alone."""
    done = mooring("sweep", "--events", "rack", "--from", str(snapshot))
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(
        "BROKEN: 1 of 3 events would break a promise; weakest: StatefulSet tidb/demo-pd had no Ready"
    )
    assert any(line.strip().startswith("would fix it: a topologySpreadConstraint") for line in lines)
    assert lines[-1] == "3 played: 2 kept, 1 broken, 0 cannot tell"


def test_json_has_the_fields_of_the_contract(snapshot: Path) -> None:
    """O7: played, kept, broken with event, verdict, first and breaches, cannot_tell."""
    done = mooring("sweep", "--events", "rack,pool", "--jobs", "2", "--from", str(snapshot), "-o", "json")
    assert (done.returncode, done.stderr) == (1, "")
    found = json.loads(done.stdout)
    assert (found["played"], found["kept"], found["cannot_tell"]) == (4, 3, [])
    (one,) = found["broken"]
    assert (one["event"], one["verdict"]) == ("rack-lost 1", "broken")
    assert one["first"].startswith("BROKEN: StatefulSet tidb/demo-pd")
    assert {"object", "promise", "seconds", "fix"} <= set(one["breaches"][0])


def _fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


@pytest.mark.nightly
def test_a_sweep_can_be_watched_on_a_page_that_stays(snapshot: Path) -> None:
    """O7: the weakest point is on it, with what would fix it; Ctrl-C ends it, and nothing answers there any more."""
    command = [sys.executable, "-m", "mooring", "rehearse", "sweep", "--events", "rack", "--page", "--port", "0"]
    sweep = subprocess.Popen(
        [*command, "--from", str(snapshot)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert sweep.stderr is not None
    url = sweep.stderr.readline().split()[1]
    while "stays until Ctrl-C" not in (said := sweep.stderr.readline()):
        assert said
    while 'http-equiv="refresh"' in (page := _fetched(url)):
        time.sleep(0.1)
    assert "<h1>BROKEN: 1 of 3 events would break a promise; weakest: StatefulSet tidb/demo-pd" in page
    assert "topologySpreadConstraint" in page
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(urllib.request.Request(url, headers={"Host": "evil.example"}), timeout=30)
    sweep.send_signal(signal.SIGINT)
    out, err = sweep.communicate(timeout=60)
    assert (sweep.returncode, out.splitlines()[-1]) == (1, "3 played: 2 kept, 1 broken, 0 cannot tell")
    assert "Traceback" not in err
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)


@pytest.mark.nightly
def test_ctrl_c_prints_what_is_known_so_far(snapshot: Path) -> None:
    """O7: a table with the events that were played, and line 1 says how many were not."""
    command = [sys.executable, "-m", "mooring", "rehearse", "sweep", "--jobs", "1", "--page", "--port", "0"]
    sweep = subprocess.Popen(
        [*command, "--from", str(snapshot)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert sweep.stderr is not None
    url = sweep.stderr.readline().split()[1]
    while not re.search(r"[1-9]\d* of \d+ events; .* left", _fetched(url)):
        time.sleep(0.1)
    sweep.send_signal(signal.SIGINT)
    while "stays until" not in (said := sweep.stderr.readline()):
        assert said
    sweep.send_signal(signal.SIGINT)
    out, _ = sweep.communicate(timeout=60)
    assert sweep.returncode == 1
    assert " not played" in out.splitlines()[0]


def test_a_sweep_that_breaks_nothing_is_0(snapshot: Path) -> None:
    """O7: all kept."""
    done = mooring("sweep", "--events", "pool", "--from", str(snapshot))
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "KEPT: no single failure of 1 breaks a promise")


@pytest.mark.parametrize(
    ("args", "said"),
    [(("--events", "nodes"), "allowed: node, rack"), (("--demo",), "--from FILE"), (("--jobs", "x"), "x")],
)
def test_bad_input_is_2_in_a_sentence(args: tuple[str, ...], said: str, snapshot: Path) -> None:
    """O7: what is wrong and what would be right."""
    done = mooring("sweep", *args, "--from", str(snapshot))
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.nightly
def test_a_pipeline_fails_on_what_got_worse_alone(snapshot: Path, tmp_path: Path) -> None:
    """O7: the same sweep is no news, exit 0; against a baseline that broke nothing it is, exit 1."""
    same, clean = tmp_path / "same.json", tmp_path / "clean.json"
    same.write_text(mooring("sweep", "--events", "rack", "--from", str(snapshot), "-o", "json").stdout)
    clean.write_text(mooring("sweep", "--events", "pool", "--from", str(snapshot), "-o", "json").stdout)
    common = ("sweep", "--events", "rack", "--from", str(snapshot), "--fail-on", "new", "--baseline")
    done = mooring(*common, str(same), "-o", "markdown")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "### Rehearsal: nothing got worse")
    done = mooring(*common, str(clean))
    assert done.returncode == 1
    assert "worse: StatefulSet tidb/demo-pd" in done.stderr
    assert mooring("sweep", "--from", str(snapshot), "--fail-on", "new").returncode == 2
