import pytest

from mooring.core.engine.invariants import broken
from tests.core.engine.engine_by_hand import Hand


@pytest.fixture
def hand():
    """An engine whose invariants hold when the test is over."""
    hand = Hand()
    yield hand
    assert broken(hand.engine) == []
