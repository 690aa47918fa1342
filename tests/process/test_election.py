"""The election as a state machine: plain calls with numbers for time, and hypothesis against three candidates."""

import heapq
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.process.lease.election import Acquire, Election, LeaseRecord, LeaseWait, Renew, StepDown, Timing


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
    assert election.observe(held("other"), 1000.0) == LeaseWait(10.0)
    assert election.observe(held("other"), 1009.5) == LeaseWait(0.5)
    assert election.observe(held("other"), 1010.0) == Acquire(held("other"))


def test_each_renewal_starts_the_wait_anew():
    """A changed resourceVersion is a sign of life."""
    election = Election("me")
    election.observe(held("other", "1"), 1000.0)
    assert election.observe(held("other", "2"), 1009.9) == LeaseWait(10.0)


def test_a_longer_promise_of_the_holder_is_kept():
    """A holder configured with 60 s gets them."""
    assert Election("me").observe(held("other", duration_s=60), 0.0) == LeaseWait(60.0)


def test_a_lease_that_vanished_is_waited_for_all_the_same():
    """Somebody deleted the object; its holder may still write until its deadline."""
    election = Election("me")
    election.observe(held("other"), 0.0)
    assert election.observe(None, 4.0) == LeaseWait(6.0)
    assert election.observe(None, 10.0) == Acquire(None)


def test_a_leader_renews_until_its_deadline_and_no_longer():
    """Seven seconds after the last accepted renewal began, writing is over, answer or no answer."""
    election = leader(at=100.0)
    assert election.may_write(106.9)
    assert election.observe(held("me"), 106.9) == Renew(held("me"))
    assert election.unheard(106.9) == LeaseWait(2.0)
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


# ── Two or three candidates, skewed clocks, a network that loses and delays ──────────────────────────────────────


class Candidate:
    """One process: reads, decides, writes, waits, as the loop does, and dies or freezes now and then."""

    def __init__(self, world, name, offset, rate):
        self.world, self.name, self.offset, self.rate = world, name, offset, rate
        self.lives = 0
        self.wake()

    def wake(self):
        self.lives += 1
        self.election = Election(f"{self.name}-{self.lives}")
        self.later(0, self.read)

    def later(self, seconds, what):
        """After so much real time, unless this life has ended by then."""
        life = self.lives
        self.world.at(seconds, lambda: what() if self.lives == life else None)

    def clock(self):
        return self.offset + self.rate * self.world.now

    def may_write(self):
        return self.election.may_write(self.clock())

    def pause(self, seconds):
        self.later(seconds / self.rate, self.read)

    def read(self):
        randomness = self.world.randomness
        if randomness.random() < 0.02:  # killed, and started again some time later
            self.lives += 1
            self.world.at(randomness.choice([0.5, 5, 20]), self.wake)
        elif randomness.random() < 0.03:  # a clean stop: first the fence, then the lease
            holder, lease = self.election.identity, self.world.lease
            self.election.stepped_down()
            if lease is not None and lease.holder == holder:
                self.world.write(lease.resource_version, "")
            self.lives += 1
            self.world.at(randomness.choice([0.5, 5]), self.wake)
        elif randomness.random() < 0.15:  # no answer
            self.decide(self.election.unheard(self.clock()))
        else:
            lease = self.world.lease
            self.later(
                randomness.choice([0.01, 0.2, 1.9]), lambda: self.decide(self.election.observe(lease, self.clock()))
            )

    def decide(self, step):
        randomness = self.world.randomness
        match step:
            case Acquire(base) | Renew(base):
                began, version, identity = self.clock(), base and base.resource_version, self.election.identity
                # The request arrives now, later, or when nobody waits for it any more.
                self.world.at(
                    randomness.choice([0.01, 0.01, 0.5, 1.5, 5.0, 15.0]),
                    lambda: self.arrived(version, identity, began),
                )
                self.pause(randomness.choice([1.6, 2.0, 2.0]))
            case LeaseWait(seconds):
                self.pause(min(seconds, 2.0))
            case StepDown():
                self.election.stepped_down()
                self.pause(2.0)

    def arrived(self, version, identity, began):
        record = self.world.write(version, identity)
        if record is not None:
            self.later(
                self.world.randomness.choice([0.01, 0.01, 1.0, 3.0]), lambda: self.answered(record, identity, began)
            )

    def answered(self, record, identity, began):
        # The loop waits for a request no longer than its time-out, and for an answer to this life's request only.
        if self.clock() - began < self.election.timing.request_s and identity == self.election.identity:
            self.election.written(record, began, self.clock())


class World:
    """Real time, one Lease with compare-and-swap, and everything that is on its way."""

    def __init__(self, seed, clocks):
        self.randomness = random.Random(seed)
        self.now, self.version, self.lease = 0.0, 0, None
        self.leads = 0
        self._agenda, self._count = [], 0
        self.all = [Candidate(self, f"c{n}", *clock) for n, clock in enumerate(clocks)]

    def at(self, seconds, what):
        self._count += 1
        heapq.heappush(self._agenda, (self.now + seconds, self._count, what))

    def write(self, version, holder):
        if (self.lease and self.lease.resource_version) != version:
            return None
        self.version += 1
        self.lease = LeaseRecord(holder, str(self.version))
        return self.lease

    def run(self, until_s):
        while self.now < until_s:
            self.now, _, what = heapq.heappop(self._agenda)
            what()
            # May-write begins with an event and ends by itself: looking after every event sees every overlap.
            writers = [c.name for c in self.all if c.may_write()]
            assert len(writers) <= 1, f"{writers} may write at {self.now:.2f} s"
            self.leads += len(writers)


CLOCKS = st.tuples(st.floats(-1e6, 1e6), st.sampled_from([0.87, 0.95, 1.0, 1.05, 1.15]))


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), clocks=st.lists(CLOCKS, min_size=2, max_size=3))
def test_never_two_that_may_write(seed, clocks):
    """Deaths, stops, lost and late answers, clocks off by years in time and 15 % in rate: at most one may write."""
    world = World(seed, clocks)
    world.run(until_s=200)
    assert world.leads > 0
