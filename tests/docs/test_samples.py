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


def test_the_sandbox_of_the_sample_does_what_it_says(capsys):
    """The Python of docs/developing.md runs as it stands."""
    (code,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "developing.md").read_text(), re.MULTILINE | re.DOTALL
    )
    exec(compile(code, "docs/developing.md", "exec"), {})
    assert "spot-0" in capsys.readouterr().out


#: Settings that a page shows: what is not of another file.
SETTINGS = [
    pytest.param(block, id=f"{name(page)}: {block.split(':')[0]}")
    for page in PAGES
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    if re.match(r"(?:windows|balance|drain|fleet|handoff|home|mix|blackbox|queue|registry|features):", block)
]


@pytest.mark.parametrize("block", SETTINGS)
def test_settings_in_the_docs_are_taken(block, tmp_path):
    """`mooring config -f FILE` takes each sample of settings as it stands."""
    file = tmp_path / "mooring.yml"
    file.write_text(block)
    done = mooring("config", "-f", str(file), "--changed")
    assert done.returncode == 0, done.stderr
