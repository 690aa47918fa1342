"""Between PD and those who ask it: whether it answers, how fast, and which requests and answers are lost."""

from collections.abc import Callable
from typing import Final

from mooring.clients.ports import TlsError, UnansweredError
from mooring_lab.cluster.clock import Timeline, TimelineClock

#: Why there is no answer while the certificates of the two sides do not fit.
REFUSED: Final = "certificate verify failed"


class PdNetwork:
    def __init__(self, timeline: Timeline, timeout_s: float) -> None:
        self._timeline = timeline
        self._clock = TimelineClock(timeline)
        self._timeout_s = timeout_s
        #: Why there is no answer now ("" when there is).
        self.away = ""
        self._away_turn = 0
        self.latency_s = 0.0
        self.lost_answers = 0
        self.lost_requests = 0

    def go_away(self, why: str, seconds: float | None, then: Callable[[], None] = lambda: None) -> None:
        """No answer for so long, then `then` is called. None: until `come_back`."""
        self.away = why
        self._away_turn += 1
        turn = self._away_turn

        def back() -> None:
            if turn == self._away_turn:
                self.away = ""
            then()

        if seconds is not None:
            self._timeline.after(seconds, back)

    def come_back(self) -> None:
        self.away = ""
        self._away_turn += 1

    async def reach(self, *, write: bool = False) -> None:
        """Raises `Unanswered` where the request does not arrive."""
        if self.latency_s:
            await self._clock.sleep(min(self.latency_s, self._timeout_s))
        if self.latency_s > self._timeout_s:
            raise UnansweredError(f"PD did not answer within {self._timeout_s:g} s")
        if self.away == REFUSED:
            raise TlsError(f"PD and Mooring refuse each other: {self.away}", "renew the client Secret of the cluster")
        if self.away:
            raise UnansweredError(f"PD did not answer: {self.away}")
        if write and self.take_lost_request():
            raise UnansweredError("PD did not answer: the request was lost")

    def answer(self) -> None:
        """A write was carried out; does its caller get the answer?"""
        if self.take_lost_answer():
            raise UnansweredError("PD did not answer: the answer was lost")

    def take_lost_request(self) -> bool:
        lost = self.lost_requests > 0
        self.lost_requests -= lost
        return lost

    def take_lost_answer(self) -> bool:
        lost = self.lost_answers > 0
        self.lost_answers -= lost
        return lost
