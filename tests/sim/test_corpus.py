"""Plans that once broke a promise, shrunken: none may do so again (O5)."""

from pathlib import Path

import msgspec
import pytest

from mooring.sim.whole.plan import Plan
from mooring.sim.whole.simulation import simulate

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_what_failed_once_does_not_fail_again(file):
    """O5: `mooring sim --plan FILE` plays it by hand; the file's name says what went wrong."""
    result = simulate(msgspec.json.decode(file.read_bytes(), type=Plan))
    assert result.failure is None, "\n".join([*result.timeline[-40:], f"mooring sim --plan {file}"])
