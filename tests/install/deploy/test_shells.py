"""Completion for shells and for kubectl."""

import shutil
import subprocess

import pytest

from mooring.cli.completion import candidates
from tests.program import mooring


@pytest.mark.parametrize(
    ("before", "last", "wanted"),
    [
        ([], "man", ["manifests"]),
        ([], "do", ["doctor"]),
        (["mix"], "ta", ["target"]),
        (["why"], "--na", ["--namespace"]),
        (["doctor", "-o"], "", ["json", "table", "yaml"]),
        (["doctor", "--short", "--output"], "j", ["json"]),
        (["completion"], "", ["bash", "fish", "zsh"]),
        (["doctor", "--wait"], "", []),
        (["nonsense"], "", []),
    ],
)
def test_kubectl_is_told_what_may_stand_here(before, last, wanted):
    """`kubectl mooring <Tab>` completes commands, subcommands, options and the words they take."""
    assert candidates(before, last) == wanted


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell):
    """The script is printed alone, and the shell itself can read it."""
    ran = mooring("completion", shell)
    assert "mooring" in ran.stdout and "doctor" in ran.stdout and ran.stderr == ""
    if program := shutil.which(shell):
        check = subprocess.run([program, "-n"], input=ran.stdout, capture_output=True, text=True)
        assert check.returncode == 0, check.stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["do"], "doctor"),
        (["mix", "ta"], "target"),
        (["doctor", "--sh"], "--short"),
        (["doctor", "-o", "js"], "json"),
    ],
)
def test_bash_completes(words, wanted):
    """Loaded into a bash, Tab gives what may stand there."""
    script = mooring("completion", "bash").stdout
    typed = " ".join(["mooring", *words])
    asked = f"COMP_WORDS=({typed}); COMP_CWORD={len(words)}; COMP_LINE='{typed}'; COMP_POINT={len(typed)}; _mooring"
    done = subprocess.run(
        ["bash", "--norc", "-c", f'{script}\n{asked}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'],
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [wanted], done.stderr
