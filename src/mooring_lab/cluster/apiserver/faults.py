"""What goes wrong between a client and the API server, from the seed alone.

There are two kinds. Rates (`FaultRates`): each call draws from a stream of its own, so the same seed and the same calls
meet the same faults. Planned faults: `arm` the next matching write, or make the server `dead` or `slow` for a while,
cut or compact the watches, let the wall clock jump; `schedule` draws a whole plan of them for a run.

    lost-request   nothing happened, and the client does not know it
    lost-answer    it happened, and the client does not know it
    conflict       another client was faster: nothing happened, and the client knows it
    throttled      429 by flow control
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from mooring.clients.ports import ConflictError, PortError, ThrottledError, UnansweredError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.watch import WatchWindow
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.randomness import SeededRandomness


class Fault(StrEnum):
    LOST_REQUEST = "lost-request"
    LOST_ANSWER = "lost-answer"
    CONFLICT = "conflict"
    THROTTLED = "throttled"


class FaultRates(msgspec.Struct, frozen=True):
    """Probabilities per write (the first four), or per read and write."""

    lost_request: float = 0.0
    lost_answer: float = 0.0
    conflict: float = 0.0
    throttled: float = 0.0
    slow: float = 0.0
    #: How long a slow call takes.
    slow_s: float = 2.0


class PlannedFault(msgspec.Struct, frozen=True):
    """One planned fault of a run: at this many seconds from its start, for this long."""

    at_s: float
    #: dead, slow, cut, compact, jump
    what: str
    lasts_s: float = 0.0


class _Armed(msgspec.Struct):
    fault: Fault
    verb: str
    kind: Kind | None
    times: int


#: What an unanswered call costs the client before it gives up.
SILENCE_S: Final = 1.0
_PLANNED: Final = ("dead", "slow", "cut", "compact", "jump")


class Faults:
    def __init__(self, timeline: Timeline, randomness: SeededRandomness, watches: WatchWindow) -> None:
        self._timeline = timeline
        self._randomness = randomness.fork("faults")
        self._watches = watches
        self._armed: list[_Armed] = []
        self._dead_until = 0.0
        self._slow_until = 0.0
        self._slow_s = 0.0
        self.rates = FaultRates()
        #: The way a 410 is told: in the stream (as the watch cache does), or as the status of the answer.
        self.expired_as_status = False
        #: What happened, for the record of a run: (at, words).
        self.log: list[tuple[float, str]] = []

    # ── Appointments ──────────────────────────────────────────────────────────────────────────────────────────────

    def arm(self, fault: Fault, *, verb: str = "", kind: Kind | None = None, times: int = 1) -> None:
        """The next writes of this verb and kind ("" and None: any) meet this fault."""
        self._armed.append(_Armed(fault, verb, kind, times))

    def disarm(self) -> None:
        """Drop all planned faults; a server that is dead or slow works again."""
        self._armed.clear()
        self._dead_until = self._slow_until = 0.0

    def dead_for(self, seconds: float) -> None:
        """No request is answered; open watches end."""
        self._dead_until = max(self._dead_until, self._timeline.monotonic() + seconds)
        self._note(f"api dead for {seconds:g}s")
        self._watches.cut()

    def slow_for(self, seconds: float, each_s: float = 2.0) -> None:
        self._slow_until = max(self._slow_until, self._timeline.monotonic() + seconds)
        self._slow_s = each_s
        self._note(f"api slow for {seconds:g}s")

    def cut_watches(self, kind: Kind | None = None) -> None:
        self._note(f"watches cut: {kind or 'all'}")
        self._watches.cut(kind)

    def compact(self, kind: Kind | None = None) -> None:
        """Streams end and what they could resume from is forgotten: the next watch gets 410."""
        self._note(f"history compacted: {kind or 'all'}")
        self._watches.compact(kind)
        self._watches.cut(kind)

    def jump_clock(self, seconds: float) -> None:
        self._note(f"wall clock jumps by {seconds:+g}s")
        self._timeline.jump(seconds)

    def schedule(self, duration_s: float, count: int) -> tuple[PlannedFault, ...]:
        """Draw `count` planned faults over the next `duration_s` and schedule them."""
        draw = self._randomness.random
        plan = tuple(
            sorted(
                (
                    PlannedFault(
                        round(draw.uniform(0, duration_s), 3), draw.choice(_PLANNED), round(draw.uniform(1, 30), 3)
                    )
                    for _ in range(count)
                ),
                key=lambda f: (f.at_s, f.what),
            )
        )
        for planned in plan:
            self._timeline.after(planned.at_s, self._appointment(planned))
        return plan

    def _appointment(self, planned: PlannedFault) -> Callable[[], None]:
        match planned.what:
            case "dead":
                return lambda: self.dead_for(planned.lasts_s)
            case "slow":
                return lambda: self.slow_for(planned.lasts_s)
            case "cut":
                return self.cut_watches
            case "compact":
                return self.compact
            case _:
                return lambda: self.jump_clock(planned.lasts_s)

    # ── What a call meets ─────────────────────────────────────────────────────────────────────────────────────────

    def dead(self) -> bool:
        return self._timeline.monotonic() < self._dead_until

    def delay_s(self) -> float:
        """How much longer than usual this call takes."""
        if self._timeline.monotonic() < self._slow_until:
            return self._slow_s
        return self.rates.slow_s if self._randomness.happens(self.rates.slow) else 0.0

    def of_write(self, verb: str, kind: Kind) -> Fault | None:
        for armed in self._armed:
            if armed.verb in {"", verb} and armed.kind in {None, kind} and _possible(armed.fault, verb):
                armed.times -= 1
                if armed.times <= 0:
                    self._armed.remove(armed)
                return self._met(armed.fault, verb, kind)
        rates = self.rates
        for fault, rate in (
            (Fault.LOST_REQUEST, rates.lost_request),
            (Fault.LOST_ANSWER, rates.lost_answer),
            (Fault.CONFLICT, rates.conflict),
            (Fault.THROTTLED, rates.throttled),
        ):
            if self._randomness.happens(rate) and _possible(fault, verb):
                return self._met(fault, verb, kind)
        return None

    def _met(self, fault: Fault, verb: str, kind: Kind) -> Fault:
        self._note(f"{fault.value}: {verb} {kind.value}")
        return fault

    def _note(self, words: str) -> None:
        self.log.append((self._timeline.monotonic(), words))


def _possible(fault: Fault, verb: str) -> bool:
    """There is no conflict on an object that does not exist yet."""
    return fault is not Fault.CONFLICT or verb != "create"


def error_of(fault: Fault, what: str) -> PortError:
    match fault:
        case Fault.CONFLICT:
            return ConflictError(
                f"{what}: the object has been modified; please apply your changes to the latest version"
            )
        case Fault.THROTTLED:
            return ThrottledError(f"{what}: too many requests", retry_after_s=1.0)
        case _:
            return UnansweredError(f"{what}: connection lost")
