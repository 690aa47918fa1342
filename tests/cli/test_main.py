"""The command as a user meets it: exit codes, errors in a sentence, help that teaches."""

import subprocess
import sys

import pytest


def mooring(*args):
    return subprocess.run(
        [sys.executable, "-m", "mooring", *args], capture_output=True, text=True, timeout=60, check=False
    )


def test_version_is_on_stdout():
    """`--version` prints the version and nothing else."""
    import mooring as package

    done = mooring("--version")
    assert (done.returncode, done.stdout.strip()) == (0, package.__version__)


@pytest.mark.parametrize(
    "args",
    [
        ("nonsense",),
        ("run", "--features", "nonsense=true"),
        ("run", "--features", "mix=perhaps"),
        ("why", "pod"),
        ("run", "--pd", "x"),
    ],
)
def test_bad_usage_exits_2_with_a_sentence_and_no_traceback(args):
    """H4: bad usage is exit 2, on stderr, in words."""
    done = mooring(*args)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("mooring: ")
    assert "Traceback" not in done.stderr


def test_an_unknown_feature_names_the_allowed_ones():
    """H4: the message says what would be right."""
    assert (
        "allowed: fleet, handoff, home, mix, traffic, StableScheduling" in mooring("run", "--features", "x=true").stderr
    )


def test_nobody_there_is_exit_4():
    """Could not look is 4, never 1."""
    done = mooring("why", "pod/x", "--server", "http://127.0.0.1:9")
    assert done.returncode == 4
    assert "no Mooring answers" in done.stderr


def test_every_command_has_help_with_an_example():
    """`--help` teaches: each command shows how it is called."""
    from mooring.cli import GROUPS

    for group in GROUPS:
        done = mooring(group, "--help")
        assert done.returncode == 0, (group, done.stderr)
        assert "Usage" in done.stdout
