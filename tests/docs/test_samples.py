"""Samples show what the commands print today: those that need no cluster are run, the others are golden answers."""

import re
import shlex
import shutil

import pytest

from tests.docs.test_docs import FENCE, PAGES, ROOT, name
from tests.program import mooring

INCIDENTS = ROOT / "tests" / "blackbox" / "incidents"
#: What these ask is in the repository: a recording, or the demo's cluster.
WITHOUT_A_CLUSTER = re.compile(r"(?:replay|blackbox redact) [\w-]+\.blackbox|rehearse play .* --demo$")


def samples():
    for page in PAGES:
        for block in FENCE.findall(page.read_text()):
            first, _, shown = block.partition("\n")
            command = first.removeprefix("$ mooring ")
            if command != first and WITHOUT_A_CLUSTER.match(command):
                yield pytest.param(command, shown, id=f"{name(page)}: {command}")


@pytest.mark.parametrize(("command", "shown"), list(samples()))
def test_a_sample_is_what_the_command_prints(command, shown, tmp_path):
    """Word for word; `…` on a line of its own, or a sample of the first line alone, leaves the rest out."""
    for recording in INCIDENTS.glob("*.blackbox"):
        shutil.copy(recording, tmp_path)
    done = mooring(*shlex.split(command), cwd=tmp_path)
    # What is told on stderr is part of these samples; progress is not.
    printed = done.stdout.split() if "rehearse" in command else [*done.stdout.split(), *done.stderr.split()]
    wanted = shown.partition("\n…")[0].split()
    assert wanted
    assert printed[: len(wanted)] == wanted


def test_the_readme_shows_a_golden_answer_of_why():
    """What README.md shows of `mooring why` is an answer that the sandbox gave."""
    sample = next(
        block for block in FENCE.findall((ROOT / "README.md").read_text()) if block.startswith("$ mooring why ")
    )
    golden = (ROOT / "tests" / "core" / "why" / "golden" / "waiting-behind-another-hand-over.txt").read_text()
    assert sample.partition("\n")[2] in golden
