"""Leader election by a Lease, without comparing the clocks of replicas. Pure: time comes in as a number.

             Acquire written                    overdue, or another holder
   follows ───────────────────▶ leads ─────────────────────────────────────▶ follows
      │ Wait (the holder is alive)   │ Renew written: goes on
      ▼                              ▼

Promises
- Only durations on one's own monotonic clock count: how long ago did I see the lease change, how long ago did I begin
  the renewal that was accepted. `renewTime` in the lease is for people; clocks of others may be wrong by years.
- `may_write` is true for at most one candidate at any moment, as long as clocks run at rates within lease : renew
  deadline of each other (10 : 7, i.e. 43 % apart). Why: a leader counts from *before* it sent its renewal and stops
  after the renew deadline; a follower counts from *after* it saw that renewal and waits for the whole lease; the write
  that takes over is a compare-and-swap on exactly what it saw.
- A lease does not fence requests under way. So a write takes less than lease − renew deadline (`Timing` checks it), and
  carries a precondition besides.

One gap stays open, as in every client of Leases: when a person deletes the Lease object, a candidate that never saw it
recreates it at once. Those that saw it wait as if it were still there.
"""

import msgspec


class Timing(msgspec.Struct, frozen=True):
    """Seconds. A lease is lost after `lease_s`; its holder stops writing after `renew_deadline_s` without a renewal."""

    lease_s: int = 10
    renew_deadline_s: float = 7.0
    retry_s: float = 2.0
    request_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_s < self.renew_deadline_s < self.lease_s:
            raise ValueError(f"leader election: 0 < retry < renew deadline < lease must hold, got {self}")
        if not 0 < self.request_s < self.lease_s - self.renew_deadline_s:
            raise ValueError(f"leader election: a request must take less than lease − renew deadline, got {self}")


class LeaseRecord(msgspec.Struct, frozen=True):
    """A Lease, as far as it decides. `holder` "" means given back."""

    holder: str
    resource_version: str
    duration_s: int = 10
    transitions: int = 0


class Acquire(msgspec.Struct, frozen=True):
    """Write ourselves into the lease, if it is still `base` (None: create it)."""

    base: LeaseRecord | None


class Renew(msgspec.Struct, frozen=True):
    """Write the lease again, if it is still `base` (None: it was deleted, create it)."""

    base: LeaseRecord | None


class LeaseWait(msgspec.Struct, frozen=True):
    """Nothing to do for so long."""

    seconds: float


class StepDown(msgspec.Struct, frozen=True):
    """Stop leading, now."""

    why: str


Step = Acquire | Renew | LeaseWait | StepDown


class Election:
    """One candidate's view. `observe` and `unheard` decide; `written` and `stepped_down` report what was done."""

    def __init__(self, identity: str, timing: Timing | None = None) -> None:
        self.identity = identity
        self.timing = timing or Timing()
        #: The lease as last seen, and when we first saw it like that.
        self._seen: LeaseRecord | None = None
        self._seen_at = 0.0
        #: When we began the last renewal that was accepted; None while we follow.
        self._renewed_at: float | None = None

    @property
    def leading(self) -> bool:
        return self._renewed_at is not None

    @property
    def holder(self) -> str:
        """Who held the lease when we last looked."""
        return self._seen.holder if self._seen else ""

    def followed(self, lease: LeaseRecord) -> bool:
        """We have given the lease back and read who holds it now. True: another replica."""
        self._seen = lease
        return lease.holder not in {"", self.identity}

    def may_write(self, now: float) -> bool:
        """Every write asks this first."""
        return self._renewed_at is not None and now - self._renewed_at < self.timing.renew_deadline_s

    def observe(self, lease: LeaseRecord | None, now: float) -> Step:
        """Decide from the lease as just read. `now` is taken after the answer came: later is safer for who waits."""
        if lease is not None and (self._seen is None or lease.resource_version != self._seen.resource_version):
            self._seen, self._seen_at = lease, now
        if self.leading:
            if lease is not None and lease.holder != self.identity:
                return StepDown(f"{lease.holder or 'no replica'} holds the lease")
            return self._overdue(now) or Renew(lease)
        if lease is not None and lease.holder in {"", self.identity}:
            # Given back; or ours by a write whose answer was lost. Either way the compare-and-swap decides.
            return Acquire(lease)
        if self._seen is None or self._seen.holder in {"", self.identity}:
            return Acquire(lease)
        left = self._seen_at + max(self._seen.duration_s, self.timing.lease_s) - now
        return LeaseWait(left) if left > 0 else Acquire(lease)

    def unheard(self, now: float) -> Step:
        """Decide without an answer: a leader goes on until its renew deadline, a follower can only wait."""
        return self._overdue(now) or LeaseWait(self.timing.retry_s)

    def written(self, lease: LeaseRecord, began_at: float, now: float) -> None:
        """The server accepted our Acquire or Renew; `began_at` is from before it was sent."""
        self._seen, self._seen_at = lease, now
        self._renewed_at = began_at

    def stepped_down(self) -> None:
        self._renewed_at = None

    def _overdue(self, now: float) -> StepDown | None:
        if self._renewed_at is None or self.may_write(now):
            return None
        return StepDown(f"the lease could not be renewed for {now - self._renewed_at:.1f} s")
