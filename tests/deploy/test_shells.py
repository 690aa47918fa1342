"""Completion for shells and for kubectl."""

import shutil
import subprocess
import sys

import pytest

from mooring.cli.completion import candidates


@pytest.mark.parametrize(
    ("before", "last", "wanted"),
    [
        ([], "ma", ["manifests"]),
        ([], "do", ["doctor"]),
        (["mix"], "ta", ["target"]),
        (["why"], "--na", ["--namespace"]),
    ],
)
def test_kubectl_is_told_what_may_stand_here(before, last, wanted):
    """`kubectl mooring <Tab>` completes commands, subcommands and options."""
    assert candidates(before, last) == wanted


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell):
    """The script is printed alone, and the shell itself can read it."""
    ran = subprocess.run(
        [sys.executable, "-m", "mooring", "completion", shell], capture_output=True, text=True, check=True
    )
    assert "mooring" in ran.stdout and "doctor" in ran.stdout and ran.stderr == ""
    if program := shutil.which(shell):
        check = subprocess.run([program, "-n"], input=ran.stdout, capture_output=True, text=True)
        assert check.returncode == 0, check.stderr
