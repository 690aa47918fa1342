"""The election as a state machine: plain calls with numbers for time, and hypothesis against three candidates."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mooring.kube.election import Acquire, Election, LeaseRecord, Renew, StepDown, Timing, Wait


def held(by: str, version: str = "1", **more) -> LeaseRecord:
    return LeaseRecord(by, version, **more)


def leader(at: float = 100.0) -> Election:
    election = Election("me")
    assert isinstance(election.observe(None, at), Acquire)
    election.written(held("me", "1"), at, at)
    return election


def test_no_lease_is_taken_at_once():
    """Nobody holds it and nobody did: create it."""
    assert Election("me").observe(None, 0.0) == Acquire(None)


def test_a_lease_given_back_is_taken_at_once():
    """An empty holder is an invitation, however fresh."""
    lease = held("")
    assert Election("me").observe(lease, 0.0) == Acquire(lease)


def test_a_living_holder_is_waited_for_on_our_own_clock():
    """Only what we saw counts: ten seconds from our first look, whatever the lease says of the time."""
    election = Election("me")
    assert election.observe(held("other"), 1000.0) == Wait(10.0)
    assert election.observe(held("other"), 1009.5) == Wait(0.5)
    assert election.observe(held("other"), 1010.0) == Acquire(held("other"))


def test_each_renewal_starts_the_wait_anew():
    """A changed resourceVersion is a sign of life."""
    election = Election("me")
    election.observe(held("other", "1"), 1000.0)
    assert election.observe(held("other", "2"), 1009.9) == Wait(10.0)


def test_a_longer_promise_of_the_holder_is_kept():
    """A holder configured with 60 s gets them."""
    assert Election("me").observe(held("other", duration_s=60), 0.0) == Wait(60.0)


def test_a_lease_that_vanished_is_waited_for_all_the_same():
    """Somebody deleted the object; its holder may still write until its deadline."""
    election = Election("me")
    election.observe(held("other"), 0.0)
    assert election.observe(None, 4.0) == Wait(6.0)
    assert election.observe(None, 10.0) == Acquire(None)


def test_a_leader_renews_until_its_deadline_and_no_longer():
    """Seven seconds after the last accepted renewal began, writing is over, answer or no answer."""
    election = leader(at=100.0)
    assert election.may_write(106.9)
    assert election.observe(held("me"), 106.9) == Renew(held("me"))
    assert election.unheard(106.9) == Wait(2.0)
    assert not election.may_write(107.0)
    assert isinstance(election.observe(held("me"), 107.0), StepDown)
    assert isinstance(election.unheard(107.0), StepDown)


def test_the_deadline_counts_from_before_the_renewal_was_sent():
    """A slow answer does not lengthen the time we may write."""
    election = leader(at=100.0)
    election.written(held("me", "2"), 102.0, 103.9)
    assert election.may_write(108.9)
    assert not election.may_write(109.0)


def test_a_leader_that_sees_another_holder_steps_down():
    """The lease is the judge, not our memory."""
    step = leader().observe(held("other", "9"), 101.0)
    assert step == StepDown("other holds the lease")


def test_who_stepped_down_may_not_write_and_may_come_back():
    """After stepping down the fence is shut at once; a lease that is still ours may be taken again."""
    election = leader(at=100.0)
    election.stepped_down()
    assert not election.may_write(100.1)
    assert election.observe(held("me"), 101.0) == Acquire(held("me"))


@pytest.mark.parametrize(
    "wrong",
    [{"renew_deadline_s": 10.0}, {"retry_s": 8.0}, {"request_s": 3.0}, {"lease_s": 7}, {"retry_s": 0.0}],
)
def test_times_that_would_break_the_promise_are_refused(wrong):
    """A request must end within lease − renew deadline; retry < renew deadline < lease."""
    with pytest.raises(ValueError, match="leader election"):
        Timing(**wrong)


# ── Three candidates, skewed clocks, a network that loses and delays ─────────────────────────────────────────────


class Candidate:
    def __init__(self, identity, offset, rate):
        self.offset, self.rate = offset, rate
        self.lives = 0
        self.identity = identity
        self.restart()

    def restart(self):
        self.lives += 1
        self.election = Election(f"{self.identity}-{self.lives}")
        self.look = None  # what a read found, on its way back
        self.sent = None  # (began_at, base version or None, life): a write on its way
        self.answer = None  # (record, began_at)

    def clock(self, real):
        return self.offset + self.rate * real


class TwoOrThreeCandidates(RuleBasedStateMachine):
    """At no moment may two of them write. Clocks differ by offset and by up to 15 % in rate."""

    @initialize(clocks=st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.85, 1.15)), min_size=2, max_size=3))
    def start(self, clocks):
        self.real = 0.0
        self.lease = None
        self.version = 0
        self.late = []  # writes that nobody waits for any more, and that may still arrive
        self.all = [Candidate(f"c{n}", *clock) for n, clock in enumerate(clocks)]

    who = st.integers(0, 2)

    def one(self, n):
        return self.all[n % len(self.all)]

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 1.9, 2.5, 3.0, 6.0, 8.0, 10.0]))
    def time_passes(self, seconds):
        self.real += seconds

    @rule(n=who)
    def read(self, n):
        c = self.one(n)
        c.look = (self.lease,)

    @rule(n=who)
    def decide(self, n):
        """The answer to a read arrives, perhaps long after it was given."""
        c = self.one(n)
        if c.look is None:
            return
        (lease,), c.look = c.look, None
        step = c.election.observe(lease, c.clock(self.real))
        match step:
            case Acquire(base) | Renew(base):
                self.lose(n)
                c.sent = (c.clock(self.real), base and base.resource_version, c.election.identity)
            case StepDown():
                c.election.stepped_down()

    def _arrives(self, base, holder):
        """Compare and swap, as the API server does."""
        have = self.lease and self.lease.resource_version
        if have != base:
            return None
        self.version += 1
        self.lease = LeaseRecord(holder, str(self.version))
        return self.lease

    @rule(n=who)
    def write_arrives(self, n):
        c = self.one(n)
        if c.sent is None:
            return
        (began, base, holder), c.sent = c.sent, None
        if (record := self._arrives(base, holder)) is not None:
            c.answer = (record, began)

    @rule(n=who)
    def answer_arrives(self, n):
        c = self.one(n)
        if c.answer is None:
            return
        (record, began), c.answer = c.answer, None
        now = c.clock(self.real)
        if now - began < c.election.timing.request_s:
            c.election.written(record, began, now)

    @rule(n=who)
    def lose(self, n):
        """Nobody waits for this write any more; it may arrive all the same."""
        c = self.one(n)
        if c.sent is not None:
            self.late.append(c.sent)
            c.sent = None
        c.answer = None

    @precondition(lambda self: self.late)
    @rule(k=st.integers(0, 9))
    def late_write_arrives(self, k):
        _, base, holder = self.late.pop(k % len(self.late))
        self._arrives(base, holder)

    @rule(n=who)
    def turn(self, n):
        """The usual course: read, decide, write and answer in quick succession."""
        self.read(n)
        self.decide(n)
        self.write_arrives(n)
        self.answer_arrives(n)

    @rule(n=who)
    def killed(self, n):
        self.lose(n)
        self.one(n).restart()

    @rule(n=who)
    def stopped(self, n):
        """A clean stop: first the fence, then the lease is given back."""
        c = self.one(n)
        if not c.election.leading:
            return
        self.lose(n)
        c.election.stepped_down()
        if self.lease is not None and self.lease.holder == c.election.identity:
            self._arrives(self.lease.resource_version, "")
        c.restart()

    @invariant()
    def never_two_that_may_write(self):
        if hasattr(self, "all"):
            writers = [c.identity for c in self.all if c.election.may_write(c.clock(self.real))]
            assert len(writers) <= 1, writers


TwoOrThreeCandidates.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestElection = TwoOrThreeCandidates.TestCase
