"""Every kind in every situation: golden files per kind, and what holds for each answer.

`MOORING_GOLDEN=write pytest tests/core/why` writes the files anew; then read the difference before committing it.
"""

import os
from pathlib import Path

import pytest

from mooring.core.engine.why.commands import has_command
from mooring.core.engine.why.words import LONGEST_ANSWER
from mooring.core.model.decision import Line
from tests.core.why.situations_by_kind import KINDS, NEVER, SITUATIONS, play_all

GOLDEN = Path(__file__).parent / "by-kind"


@pytest.fixture(scope="module")
def said():
    return play_all()


@pytest.mark.parametrize("kind", KINDS)
def test_why_says_exactly_this_of_each_kind(said, kind):
    """O3: a retiring, drained, cordoned, tainted, leaving or interrupted object never reads as if nothing were."""
    parts = []
    for situation in SITUATIONS:
        for subject, text, _ in said.get((kind, situation), ()):
            parts.append(f"# {situation}\n$ mooring why {subject}\n{text}\n")
    text = "\n".join(parts)
    file = GOLDEN / f"{kind}.txt"
    if os.environ.get("MOORING_GOLDEN") == "write":
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


def test_every_cell_is_shown_or_cannot_be(said):
    """Kind × situation has no hole: each cell has a golden answer, or a reason why it cannot be."""
    cells = {(kind, situation) for kind in KINDS for situation in SITUATIONS}
    assert set(said) | set(NEVER) == cells
    assert not set(said) & set(NEVER)


def test_the_state_word_fits_the_situation(said):
    """The five words mean what language.md says; only what is as it should be is `stable`."""
    for (kind, situation), answers in said.items():
        for subject, text, value in answers:
            if value is None:
                assert situation == "not-found" or "off, so" in text, (subject, text)
                assert "not found" in text or "never was" in text
                continue
            if situation in {"stable", "moving", "waiting", "blocked", "refused"}:
                assert value["state"] == situation, (kind, situation, text)
            if situation == "feature-off":
                assert value["reason"] == "feature-off", text
            if situation in {"leaving", "interrupted", "expired-notice"} and kind != "pod":
                assert value["state"] != "stable", text


def test_blocked_and_refused_answers_end_with_a_command(said):
    """Language: blocked means that a person must act, and the answer ends with what to type."""
    seen = 0
    for answers in said.values():
        for _, text, value in answers:
            if value is not None and value["state"] in {"blocked", "refused"}:
                seen += 1
                assert has_command([Line(line["label"], line["text"]) for line in value["lines"]]), text
    assert seen > 15


def test_line_1_fits(said):
    """At most 110 characters, whatever is said."""
    for answers in said.values():
        assert all(len(value["answer"]) <= LONGEST_ANSWER for _, _, value in answers if value is not None)
