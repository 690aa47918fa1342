"""Request bodies, treated as hostile input.

Every listener reads through here: a body has a limit and a deadline, all bodies of the process together have one
budget, and none is ever unpacked (the listeners are opened with `LISTEN`, which leaves compressed bodies as they are).
A refused body is answered with a 4xx or 503, never with an internal error.
"""

import asyncio
from typing import Any, Final

from aiohttp import web

from mooring.core.model.limits import MIB

#: All bodies that are held at one time. A body that is being read is not held elsewhere.
BUDGET: Final = 192 * MIB
#: kube-scheduler and the API server wait less than this for the whole answer.
DEADLINE_S: Final = 10.0
#: An idle connection, or one with an incomplete request, is closed after this. API servers and schedulers close idle
#: ones after 90 s, before this.
IDLE_S: Final = 120.0
#: Given twice to what is being answered when a replica stops, first to end and then to be canceled: a client that takes
#: no bytes must not delay the stop.
STOP_S: Final = 1.0
#: For `web.AppRunner`: 64 KB may decompress to 64 MiB, before any check of ours runs.
LISTEN: Final[dict[str, Any]] = {
    "auto_decompress": False,
    "access_log": None,
    "lingering_time": 1.0,
    "keepalive_timeout": IDLE_S,
    "shutdown_timeout": STOP_S,
}


class BodyRefusedError(Exception):
    """What to answer instead: a status, a sentence, and a word for metrics."""

    def __init__(self, status: int, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.reason = reason


class BodyIntake:
    """One per process."""

    def __init__(self, budget: int = BUDGET, deadline_s: float = DEADLINE_S) -> None:
        self.budget = budget
        self.deadline_s = deadline_s
        self.held = 0

    def body(self, request: web.Request, limit: int) -> "_Body":
        """The body, counted against the budget for as long as the block lasts. BodyRefusedError: it is not read."""
        return _Body(self, request, limit)


class _Body:
    """One body, and what it has taken of the budget."""

    __slots__ = ("_bytes", "_intake", "_limit", "_request")

    def __init__(self, intake: BodyIntake, request: web.Request, limit: int) -> None:
        self._intake = intake
        self._request = request
        self._limit = limit
        self._bytes = 0

    async def __aenter__(self) -> bytes:
        try:
            return await self._read()
        except BaseException:
            self._give_back()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._give_back()

    async def _read(self) -> bytes:
        """One that is refused is read to its end, so that its sender gets the answer; one that is late is not."""
        content, refusal = self._request.content, _packed(self._request)
        chunks: list[bytes] = []
        try:
            if content.is_eof():  # all of it is here, as most are: there is nothing to wait for
                refusal = self._take(content.read_nowait(), chunks, refusal)
            else:
                async with asyncio.timeout(self._intake.deadline_s):
                    while chunk := await content.readany():
                        refusal = self._take(chunk, chunks, refusal)
        except TimeoutError:
            said = f"the body did not arrive within {self._intake.deadline_s:g} s"
            raise BodyRefusedError(408, "late", said) from None
        except web.RequestPayloadError as error:
            said = " ".join(str(error).split())[:200]
            raise BodyRefusedError(400, "invalid", f"the body cannot be read: {said}; must be plain JSON") from None
        if refusal is not None:
            raise refusal
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _take(self, chunk: bytes, chunks: list[bytes], refusal: BodyRefusedError | None) -> BodyRefusedError | None:
        if refusal is None:
            self._bytes += len(chunk)
            self._intake.held += len(chunk)
            chunks.append(chunk)
            if self._bytes > self._limit:
                refusal = BodyRefusedError(413, "too-large", f"the request is larger than {self._limit // MIB} MB")
            elif self._intake.held > self._intake.budget:
                refusal = BodyRefusedError(503, "busy", "too many large requests at one time; ask again")
        if refusal is not None:
            self._give_back()
            chunks.clear()
        return refusal

    def _give_back(self) -> None:
        self._intake.held -= self._bytes
        self._bytes = 0


def _packed(request: web.Request) -> BodyRefusedError | None:
    if request.headers.get("Content-Encoding", "identity").strip().lower() in {"", "identity"}:
        return None
    return BodyRefusedError(415, "invalid", "a compressed body is not unpacked (no gzip); send plain JSON")
