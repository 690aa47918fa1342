"""How controllers create pods: in waves that double while all goes well.

A wave's calls are in flight together; the next wave starts when all its answers are there and none was a refusal.
Admission sees bursts just as it does behind a real ReplicaSet controller: 1, 2, 4, 8 … creations of one owner
before any watcher has seen the first pod.
"""

from collections.abc import Callable

from mooring.clients.ports import Json, PortError
from mooring.sandbox.clock import Timeline

#: Sends one pod to the API server, through admission and quota; the answer may come later (a webhook is asked).
Send = Callable[[Json, Callable[[PortError | None], None]], None]


class Waves:
    """One slow-start batch run for one owner."""

    def __init__(
        self,
        timeline: Timeline,
        send: Send,
        pods: list[Json],
        done: Callable[[PortError | None], None],
        *,
        call_s: float,
    ) -> None:
        self._timeline = timeline
        self._send = send
        self._pods = pods
        self._done = done
        self._call_s = call_s
        self._size = 1
        self._next = 0
        self._open = 0
        self._error: PortError | None = None

    def start(self) -> None:
        wave = self._pods[self._next : self._next + self._size]
        if not wave:
            self._done(None)
            return
        self._next += len(wave)
        self._size *= 2
        self._open = len(wave)
        for pod in wave:
            self._send(pod, self._answer)

    def _answer(self, error: PortError | None) -> None:
        self._error = self._error or error
        self._open -= 1
        if self._open:
            return
        if self._error is not None:
            self._done(self._error)
        elif self._next >= len(self._pods):
            self._done(None)
        else:
            self._timeline.after(self._call_s, self.start)
