"""Plans that once broke a promise, shrunken: none may do so again (O5)."""

from pathlib import Path

import msgspec
import pytest

from mooring.core.engine.schedule import Repetitions
from mooring_lab.simulate.plan import Plan
from mooring_lab.simulate.simulation import simulate

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_what_failed_once_does_not_fail_again(file):
    """O5: `mooring sim --plan FILE` plays it by hand; the file's name says what went wrong."""
    result = simulate(msgspec.json.decode(file.read_bytes(), type=Plan))
    assert result.failure is None, "\n".join([*result.timeline[-40:], f"mooring sim --plan {file}"])


def test_without_the_guard_the_circle_is_found(monkeypatch):
    """Rule 12: two detached pods and an unready sibling; only the budget of repetitions ends the circle."""
    file = CORPUS[0].parent / "take-over-of-two-detached-pods-turned-in-a-circle.json"
    monkeypatch.setattr(Repetitions, "back_off_until", lambda *_: None)
    failure = simulate(msgspec.json.decode(file.read_bytes(), type=Plan)).failure
    assert failure is not None
    assert failure.promise == "operators per subject and minute"
