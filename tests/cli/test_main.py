"""The command as a user meets it: exit codes, errors in a sentence, help that teaches."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mooring.capabilities.registry import names
from tests.program import mooring


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
        ("mix", "target", "--kind", "Deployment", "--replicas", "1.5"),
        ("manifests", "--replicas", "2.5"),
        ("manifests", "--namespace", "Bad Name"),
        ("balance", "calibrate", "--bound", "nan"),
        ("demo", "--short", "--speed", "nan"),
        ("lab", "up", "--with", "nonsense"),
        ("lab", "up", "--nodes", "0.5"),
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
    said = mooring("run", "--features", "x=true").stderr
    assert [name for name in (*names(), "StableScheduling") if name not in said.partition("allowed: ")[2]] == []


def test_nobody_there_is_exit_4():
    """Could not look is 4, never 1."""
    done = mooring("why", "pod/x", "--server", "http://127.0.0.1:9")
    assert done.returncode == 4
    assert "no Mooring answers" in done.stderr


def into(stdout, *args):
    # Python buffers stdout unless told otherwise: what cannot be written then shows only at the end.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "mooring", *args]
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False, env=environment
    )


TARGET = ("mix", "target", "--kind", "Deployment", "--replicas", "3")


@pytest.mark.parametrize("args", [TARGET, ("--help",), ("why", "--help"), ("config",), ("manifests",)], ids=" ".join)
def test_a_reader_that_has_left_is_no_error(args):
    """`| head -1`: nothing of ours is wrong, so exit 0 and not a word, however late it shows."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = into(writer, *args)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_is_a_sentence():
    """What could not be written is told in words, never as a traceback."""
    with Path("/dev/full").open("w") as full:
        done = into(full, *TARGET)
    assert (done.returncode, done.stderr) == (
        2,
        "mooring: stdout: No space left on device; the answer is not complete\n",
    )


@pytest.mark.parametrize("closed", [1, 2])
def test_a_stream_that_the_caller_closed(closed):
    """`>&-` and `2>&-`: the command does its work, and what belongs to the closed stream goes nowhere else."""
    shell = f'exec {closed}>&-; exec "$@"'
    command = ["sh", "-c", shell, "sh", sys.executable, "-m", "mooring", "queue", "replay", "-"]
    done = subprocess.run(
        command, input='rubbish\n{"at": 0, "do": "tick"}', capture_output=True, text=True, timeout=60, check=False
    )
    said, event = "-:1: not a JSON object", '{"at":0.0,"event":"ignored","reason":"invalid"}\n'
    assert (done.returncode, done.stdout) == (0, "" if closed == 1 else event)
    assert done.stderr.startswith(said if closed == 1 else "") and "Traceback" not in done.stderr


def test_run_ends_politely_before_it_has_begun(tmp_path):
    """SIGTERM is exit 0 from the first moment, also while the API server has not answered yet."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        config = tmp_path / "kubeconfig"
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        config.write_text(
            "current-context: c\n"
            f"clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
            "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
            "users: [{name: u, user: {token: x}}]\n"
        )
        command = [sys.executable, "-m", "mooring", "run", "--kubeconfig", str(config)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
            asked, _ = silent.accept()
            running.terminate()
            said = running.communicate(timeout=60)[1]
            asked.close()
    assert (running.returncode, said) == (0, "")


def test_every_command_has_help_with_an_example():
    """`--help` teaches: each command shows how it is called."""
    from mooring.cli import GROUPS

    for group in GROUPS:
        done = mooring(group, "--help")
        assert done.returncode == 0, (group, done.stderr)
        assert "Usage" in done.stdout


@pytest.mark.parametrize("command", [("sim", "--seeds", "1..2"), ("rehearse", "sweep", "--demo")])
def test_fewer_than_no_processes_are_refused(command):
    """A negative --jobs is bad usage with a sentence: a sweep once waited for ever."""
    done = mooring(*command, "--jobs=-1")
    assert (done.returncode, "0 means one per core" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("queue", "foo"), "mooring queue takes no more words: foo is one too many; see: mooring queue --help"),
        (("quue",), "mooring has no command quue; did you mean queue? See: mooring --help"),
        (("lab", "upp"), "mooring lab has no command upp; did you mean up? See: mooring lab --help"),
        (("--nope",), "mooring has no option --nope; see: mooring --help"),
        (("fleet", "plan"), "mooring fleet plan needs --template; see: mooring fleet plan --help"),
        (("why", "-n"), "-n needs a value; see: mooring why --help"),
        (("queue", "--nme", "x"), "Did you mean --namespace? See: mooring queue --help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_was_mistyped_is_said_in_our_words(args, said):
    """Bad usage is 2, with what was too much or missing, what is near, and where to read on."""
    done = mooring(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"{said}\n"), done.stderr
