"""The one way in which the tests on the real control plane wait: `tests/e2e/waiting.py`."""

import pytest

from tests.e2e.waiting import CAP_S, LIMIT_S, Patience


class Clock:
    def __init__(self):
        self.s = 0.0

    def __call__(self):
        return self.s


def ends_at(told):
    """When patience ends, looked at every second, for what is told at that second."""
    clock = Clock()
    patience = Patience("the pod", tell=lambda: told(clock.s), now=clock)
    while clock.s < 2 * CAP_S:
        clock.s += 1
        try:
            patience.look()
        except AssertionError as failed:
            return clock.s, str(failed)
    raise AssertionError("it waited for ever")


def test_what_stands_still_is_waited_for_no_longer_than_the_limit_and_a_half():
    """And the failure says what, for how long, and the last state."""
    at, words = ends_at(lambda _: "Pending")
    assert at == LIMIT_S * 1.5
    assert words.startswith("the pod did not come to hold in 180 s, the last 120 s without any change")
    assert "Pending" in words


def test_the_limit_starts_again_whenever_the_state_changes():
    at, words = ends_at(lambda s: f"{min(s, 200) // 20:.0f} Ready")
    assert 200 + LIMIT_S <= at < CAP_S
    assert "10 Ready" in words


def test_what_changes_for_ever_ends_all_the_same():
    at, _ = ends_at(str)
    assert at == pytest.approx(CAP_S, abs=LIMIT_S / 2)
