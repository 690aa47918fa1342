"""What a person reads, word for word, in the situations of a bad night.

`MOORING_GOLDEN=write pytest tests/core/why` writes the files anew; then read the difference before committing it.
"""

import os
from pathlib import Path

import pytest

from mooring.core.engine.why.commands import has_command
from mooring.core.engine.why.words import LONGEST_ANSWER
from mooring.core.model.decision import Line
from mooring.core.model.reasons import State
from tests.core.why import situations, situations_of_all

GOLDEN = Path(__file__).parent / "golden"
WORDS = {str(state) for state in State}
PLAY = {name: module.play for module in (situations, situations_of_all) for name in module.SITUATIONS}


@pytest.mark.parametrize("name", PLAY)
def test_why_says_exactly_this(name):
    """O3: the answer, its sum, who is ahead, what to type: byte for byte, on a state that the sandbox really was in."""
    asked = PLAY[name](name)
    text = "\n\n".join(f"$ mooring why {subject}\n{said}" for subject, (said, _) in asked.items()) + "\n"
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("MOORING_GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()
    for said, value in asked.values():
        first = said.splitlines()[0]
        assert len(first) <= LONGEST_ANSWER
        if value is not None:
            assert value["answer"] == first
            assert value["state"] in WORDS
            # Line 1 says the state word itself.
            assert value["state"] in first
            if value["state"] in {State.BLOCKED, State.REFUSED}:
                # A person must act: what to type is there.
                assert has_command([Line(line["label"], line["text"]) for line in value["lines"]]), said


def test_no_golden_file_is_left_over():
    """Every file in golden/ belongs to a situation."""
    assert {f.stem for f in GOLDEN.iterdir()} == set(PLAY)
