"""T12: PD's own schedulers stand aside while ours balance: a minute at a time, and as PD shows it."""

import pytest

from mooring.capabilities.balance import pause
from mooring.capabilities.balance.book import Book
from mooring.capabilities.balance.pause import PD_SCHEDULERS
from mooring.capabilities.balance.policy import BalancePolicy
from mooring.core.model.tidb import PdPause, PdView, TidbCluster

POLICY = BalancePolicy()
TC = TidbCluster("tidb", "demo", "u", "1")
OURS = tuple(sorted(PD_SCHEDULERS.values()))


def view(paused=(), *, schedulers=(*OURS, "evict-leader-scheduler"), life=7, evicting=(), length=60, left=59.0):
    pauses = tuple(PdPause(name, length, left) for name in paused)
    return PdView((), evicting, 0, life, schedulers=schedulers, pauses=pauses)


@pytest.fixture
def book():
    return Book(POLICY)


def evaluate(seen, seen_at, now, asked_at=None):
    return pause.evaluate(POLICY, TC, seen, seen_at, asked_at, now)


def asked(look):
    return [i.name for i in look.instructions if i.seconds == 60]


def test_paused_is_what_a_look_shows(book):
    """Asked for is not enough: what PD began until then must be in the picture first."""
    assert asked(evaluate(view(), 99.0, 100.0)) == list(OURS)
    book.see(view(OURS[:1]), 101.0)
    assert book.aside_since is None, "one of two is awake"
    book.see(view(OURS), 102.0)
    assert (book.aside_since, book.aside_until) == (102.0, 161.0)
    book.see(view(OURS), 103.0)
    assert book.aside_since == 102.0, "without a break"


def test_a_break_is_noticed(book):
    """A pause that had ended before it was asked for again: PD balanced by itself in between."""
    book.see(view(OURS), 100.0)
    book.see(view(OURS), 160.0)
    assert book.aside_since == 160.0
    book.see(view(OURS, life=8), 161.0)
    assert book.aside_since == 161.0, "a PD that restarted had forgotten its pauses"


def test_a_pause_that_was_lost_is_asked_for_again_at_once():
    """A look after the request that shows one awake is answered before the renewal is due."""
    assert asked(evaluate(view(), 99.0, 100.1, asked_at=100.0)) == [], "that look is older than the request"
    assert asked(evaluate(view(OURS[:1]), 101.0, 101.1, asked_at=100.0)) == list(OURS)


def test_pauses_are_renewed_in_time():
    """Every twenty seconds; what is left decides, whoever asked for it: we may have started anew."""
    assert asked(evaluate(view(OURS, left=60.0), 100.0, 119.9, asked_at=99.0)) == []
    due = evaluate(view(OURS, left=60.0), 100.0, 120.0, asked_at=99.0)
    assert asked(due) == list(OURS) and due.notes == 120.0
    assert asked(evaluate(view(OURS, left=30.0), 100.0, 100.0)) == list(OURS)


def test_asking_twice_asks_the_same():
    """`why` swallowed a due renewal: asking whether one is due is no renewal."""
    due = [evaluate(view(OURS, left=30.0), 100.0, 100.0, asked_at=70.0) for _ in range(2)]
    assert due[0] == due[1] and asked(due[0]) == list(OURS)


def test_a_pd_that_starts_is_asked_before_it_has_schedulers(book):
    """Another life of PD has forgotten its pauses: nothing is believed, and it is asked at once."""
    starting = view(schedulers=(), life=8, evicting=None)
    book.see(starting, 105.0)
    assert book.aside_since is None
    assert asked(evaluate(starting, 105.0, 105.0, asked_at=100.0)) == list(OURS)


def test_a_scheduler_that_somebody_removed_is_not_waited_for(book):
    """One that PD does not list cannot balance either."""
    left = OURS[1:]
    book.see(view(left, schedulers=left), 101.0)
    assert book.aside_since == 101.0


def test_a_longer_pause_is_somebody_elses():
    """T12: BR and TiDB Lightning pause for minutes: never renewed by us, hence never shortened, and we wait with PD."""
    theirs = view(OURS, length=300, left=250.0)
    assert asked(evaluate(theirs, 100.0, 200.0, asked_at=90.0)) == []
    assert pause.left_s(theirs, POLICY) is None
    assert pause.others_pause(theirs, POLICY).length_s == 300


def test_the_hot_scheduler_is_never_paused():
    """T12: PD's own moves hot peers too, and ours does not."""
    policy = BalancePolicy(sources=("balance-leader", "hot"))
    assert pause.schedulers_of(policy.sources) == ("balance-leader-scheduler",)
