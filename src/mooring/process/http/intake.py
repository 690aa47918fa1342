"""Request bodies, treated as hostile input.

Every listener reads through here: a body has a limit and a deadline, all bodies of the process together have one
budget, and none is ever unpacked (the listeners are opened with `LISTEN`, which leaves compressed bodies as they are).
A refused body is answered with a 4xx or 503, never with an internal error.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

MIB: Final = 1 << 20
#: All bodies that are held at one time. A body that is being read is not held elsewhere.
BUDGET: Final = 192 * MIB
#: kube-scheduler and the API server wait less than this for the whole answer.
DEADLINE_S: Final = 10.0
#: An idle connection, or one with an incomplete request, is closed after this. API servers and schedulers close idle
#: ones after 90 s, before this.
IDLE_S: Final = 120.0
#: For `web.AppRunner`: 64 KB may decompress to 64 MiB, before any check of ours runs.
LISTEN: Final[dict[str, Any]] = {
    "auto_decompress": False,
    "access_log": None,
    "lingering_time": 1.0,
    "keepalive_timeout": IDLE_S,
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
        self._deadline_s = deadline_s
        self.held = 0

    @asynccontextmanager
    async def body(self, request: web.Request, limit: int) -> AsyncIterator[bytes]:
        """The body, counted against the budget for as long as the block lasts. BodyRefusedError: it is not read."""
        taken = _Taken(self)
        try:
            yield await self._read(request, limit, taken)
        finally:
            taken.give_back()

    async def _read(self, request: web.Request, limit: int, taken: "_Taken") -> bytes:
        """One that is refused is read to its end, so that its sender gets the answer; one that is late is not."""
        packed = request.headers.get("Content-Encoding", "identity").strip().lower() not in {"", "identity"}
        refusal: BodyRefusedError | None = None
        if packed:
            refusal = BodyRefusedError(415, "invalid", "a compressed body is not unpacked (no gzip); send plain JSON")
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(self._deadline_s):
                while chunk := await request.content.readany():
                    if refusal is None:
                        refusal = taken.more(len(chunk), limit)
                        chunks.append(chunk)
                    if refusal is not None:
                        taken.give_back()
                        chunks.clear()
        except TimeoutError:
            said = f"the body did not arrive within {self._deadline_s:g} s"
            raise BodyRefusedError(408, "late", said) from None
        except web.RequestPayloadError as error:
            said = " ".join(str(error).split())[:200]
            raise BodyRefusedError(400, "invalid", f"the body cannot be read: {said}; must be plain JSON") from None
        if refusal is not None:
            raise refusal
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class _Taken:
    """What one body has taken of the budget."""

    def __init__(self, intake: BodyIntake) -> None:
        self._intake = intake
        self._bytes = 0

    def more(self, size: int, limit: int) -> BodyRefusedError | None:
        self._bytes += size
        self._intake.held += size
        if self._bytes > limit:
            return BodyRefusedError(413, "too-large", f"the request is larger than {limit // MIB} MB")
        if self._intake.held > self._intake.budget:
            return BodyRefusedError(503, "busy", "too many large requests at one time; ask again")
        return None

    def give_back(self) -> None:
        self._intake.held -= self._bytes
        self._bytes = 0
