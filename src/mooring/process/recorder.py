"""Kubernetes Events and metrics, in the one vocabulary of reasons.

Events go out in the background through a bounded queue: a slow API server never slows deciding, and what does not fit
is counted instead. The same thing is not said twice: uid and reason are the key, for 15 minutes, unless the words have
changed (lists inside messages are sorted where they are made, so that order does not defeat this).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

import structlog

from mooring.clients.ports import Clock, Json, KubeApi, PortError, Randomness
from mooring.core.model.kinds import RESOURCES, Kind
from mooring.core.model.times import rfc3339
from mooring.process.metrics import Metrics

log = structlog.get_logger()

AGAIN_AFTER_S: Final = 15 * 60.0
REMEMBERED: Final = 10_000
BACKLOG: Final = 1_000
#: Of an Event's note, by the API.
LONGEST: Final = 1_024


class KubeRecorder:
    def __init__(self, api: KubeApi, clock: Clock, randomness: Randomness, metrics: Metrics, *, identity: str) -> None:
        self._api = api
        self._clock = clock
        self._randomness = randomness
        self.metrics = metrics
        self._identity = identity
        self._said: OrderedDict[tuple[str, str], tuple[float, str]] = OrderedDict()
        self._queue: asyncio.Queue[Json] = asyncio.Queue(BACKLOG)

    async def run(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await self._api.create(Kind.EVENT, event)
            except PortError as error:
                self.metrics.count("mooring_events_lost_total", {"why": "refused"})
                log.debug("event.write-failed", error=str(error), message=event["message"])

    def event(
        self, kind: Kind, namespace: str, name: str, *, uid: str, reason: str, message: str, warning: bool = False
    ) -> None:
        now = self._clock.monotonic()
        key = (uid, reason)
        said = self._said.get(key)
        if said is not None and said[1] == message and now - said[0] < AGAIN_AFTER_S:
            return
        self._said[key] = (now, message)
        self._said.move_to_end(key)
        if len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        try:
            self._queue.put_nowait(self._object(kind, namespace, name, uid, reason, message, warning=warning))
        except asyncio.QueueFull:
            self.metrics.count("mooring_events_lost_total", {"why": "backlog"})

    def _object(
        self, kind: Kind, namespace: str, name: str, uid: str, reason: str, message: str, *, warning: bool
    ) -> Json:
        stamp = rfc3339(self._clock.now())
        where = namespace or "default"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": where, "name": f"{name}.{self._randomness.token(10)}"},
            "involvedObject": {
                "apiVersion": RESOURCES[kind].api_version,
                "kind": str(kind),
                "namespace": namespace,
                "name": name,
                "uid": uid,
            },
            "reason": "".join(part.capitalize() for part in reason.split("-")),
            "message": message[:LONGEST],
            "type": "Warning" if warning else "Normal",
            "source": {"component": "mooring"},
            "reportingComponent": "mooring",
            "reportingInstance": self._identity,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }

    def count(self, name: str, labels: Mapping[str, str], by: int = 1) -> None:
        self.metrics.count(name, labels, by)

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None:
        self.metrics.observe(name, labels, value)
