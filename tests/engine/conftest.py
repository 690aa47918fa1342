import sys
from pathlib import Path

import pytest

# The hand-driven cluster is plain code beside these tests.
sys.path.insert(0, str(Path(__file__).parent))
from engine_by_hand import Hand

from mooring.engine.invariants import broken


@pytest.fixture
def hand():
    """An engine whose invariants hold when the test is over."""
    hand = Hand()
    yield hand
    assert broken(hand.engine) == []
