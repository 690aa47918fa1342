"""T12: PD's own schedulers stand aside while ours balance: a minute at a time, and as PD shows it."""

import pytest

from mooring.capabilities.balance.pause import PD_SCHEDULERS, Pauses
from mooring.capabilities.balance.policy import BalancePolicy
from mooring.core.model.cluster import Key
from mooring.core.model.tidb import PdView, TidbCluster

DEMO = Key("tidb", "demo")
TC = TidbCluster("tidb", "demo", "u", "1")
OURS = tuple(sorted(PD_SCHEDULERS.values()))


def view(paused=(), *, schedulers=(*OURS, "evict-leader-scheduler"), life=7, evicting=()):
    return PdView((), evicting, 0, life, schedulers=schedulers, paused=tuple(paused))


@pytest.fixture
def pauses():
    return Pauses(BalancePolicy())


def asked(look):
    return [i.name for i in look.instructions if i.seconds == 60]


def test_paused_is_what_a_later_look_shows(pauses):
    """Asked for is not enough, nor is a look from before: what PD began until then must be in the picture first."""
    assert asked(pauses.evaluate(TC, view(), 99.0, 100.0)) == list(OURS)
    assert not pauses.hold(DEMO, view(OURS), 99.0, 100.2), "seen before it was asked for: somebody else's pause"
    assert not pauses.hold(DEMO, view(OURS[:2]), 101.0, 101.2), "one of three is awake"
    assert pauses.hold(DEMO, view(OURS), 101.0, 101.2)


def test_a_pause_that_was_lost_is_asked_for_again_at_once(pauses):
    """A look after the request that shows one awake is answered before the renewal is due."""
    pauses.evaluate(TC, view(), 99.0, 100.0)
    assert asked(pauses.evaluate(TC, view(), 99.0, 100.1)) == [], "that look is older than the request"
    assert asked(pauses.evaluate(TC, view(OURS[:2]), 101.0, 101.1)) == list(OURS)


def test_pauses_are_renewed_in_time_and_end_by_themselves(pauses):
    """Every twenty seconds, without a gap in between; nobody renews them: after a minute they are no longer believed."""
    pauses.evaluate(TC, view(), 99.0, 100.0)
    assert asked(pauses.evaluate(TC, view(OURS), 119.0, 119.9)) == []
    assert asked(pauses.evaluate(TC, view(OURS), 119.0, 120.0)) == list(OURS)
    assert pauses.hold(DEMO, view(OURS), 119.0, 120.1), "the renewal interrupts nothing"
    assert pauses.hold(DEMO, view(OURS), 179.0, 179.9) and not pauses.hold(DEMO, view(OURS), 179.0, 180.0)


def test_a_pd_that_starts_is_asked_before_it_has_schedulers(pauses):
    """Another life of PD has forgotten its pauses: nothing is believed, and it is asked at once."""
    pauses.evaluate(TC, view(), 99.0, 100.0)
    starting = view(schedulers=(), life=8, evicting=None)
    assert not pauses.hold(DEMO, starting, 105.0, 105.0)
    assert asked(pauses.evaluate(TC, starting, 105.0, 105.0)) == list(OURS)
    assert not pauses.hold(DEMO, starting, 106.0, 106.0)
    assert pauses.hold(DEMO, view(OURS, life=8), 107.0, 107.0)


def test_a_scheduler_that_somebody_removed_is_not_waited_for(pauses):
    """One that PD does not list cannot balance either."""
    left = OURS[1:]
    pauses.evaluate(TC, view(schedulers=left), 99.0, 100.0)
    assert pauses.hold(DEMO, view(left, schedulers=left), 101.0, 101.2)
