"""`mooring rehearse` as a user meets it: a file, a verdict, and exit codes that scripts can use."""

import json
from pathlib import Path

import pytest

from tests import program


def mooring(*args: str) -> program.Done:
    return program.mooring("rehearse", *args)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rehearse") / "demo.json"
    done = mooring("snapshot", "--to", str(path), "--demo")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "24 Nodes" in done.stderr
    return path


def test_a_verdict_that_holds_is_0_and_line_1(snapshot: Path) -> None:
    """O4: the answer first, data on stdout alone."""
    done = mooring("play", "spot-gone", "--from", str(snapshot))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "HOLDS: no pod is interrupted"


def test_a_verdict_that_does_not_hold_is_1_and_json_is_complete(snapshot: Path) -> None:
    """O4: exit 1, and one JSON value with the same answer, every pod and every row."""
    done = mooring("play", "spot-gone", "--unannounced", "--from", str(snapshot), "-o", "json")
    assert (done.returncode, done.stderr) == (1, "")
    found = json.loads(done.stdout)
    assert (found["format"], found["version"], found["verdict"]) == ("mooring-rehearsal-outcome", 1, "broken")
    assert found["answer"].startswith("BROKEN: Deployment shop/api had no Ready replica")
    assert len(found["played"]["gone"]) == 24
    assert found["played"]["timeline"][0]["who"] == "event"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("play", "rack-lost", "9"), "there are 1 2 3"),
        (("play",), "name an event"),
        (("play", "spot-gone", "--notice", "soon"), "not a duration"),
        (("play", "spot-gone", "--for", "x"), "not a duration"),
        (("play", "spot-gone", "--ending", "x"), "not a duration"),
        (("play", "spot-gone", "--page", "--speed", "0"), "more than 0"),
        (("play", "spot-gone", "--seeds=-3"), "--seeds: how many, e.g. 20"),
        (("play", "spot-gone", "--features", "x=true"), "allowed: balance"),
        (("play", "spot-gone", "--demo"), "--from FILE"),
    ],
)
def test_bad_input_is_2_in_a_sentence(args: tuple[str, ...], said: str, snapshot: Path) -> None:
    """O4: what is wrong and what would be right; never a traceback."""
    done = mooring(*args, "--from", str(snapshot))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("mooring: ")
    assert said in done.stderr


def test_a_file_that_is_no_snapshot_is_2(tmp_path: Path) -> None:
    """O4: nothing there, or something else."""
    other = tmp_path / "other.json"
    other.write_text("{}")
    for path in (tmp_path / "nothing.json", other):
        done = mooring("play", "spot-gone", "--from", str(path))
        assert (done.returncode, done.stdout) == (2, "")
        assert str(path) in done.stderr


def test_a_cluster_that_does_not_answer_is_4_and_no_file_appears(tmp_path: Path) -> None:
    """O4: could not look is 4, never 1; half a snapshot is none."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {}}],
                "current-context": "c",
            }
        )
    )
    done = mooring("snapshot", "--to", str(tmp_path / "out.json"), "--kubeconfig", str(kubeconfig))
    assert (done.returncode, done.stdout) == (4, "")
    assert "does not answer" in done.stderr
    assert not (tmp_path / "out.json").exists()
