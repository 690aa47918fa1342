"""An exception in a capability affects only the object it was raised for: one pod that a capability fails on must not
crash the whole process, and crash it again after every restart.

`mooring run` listens, logs and counts. The key, or the operator, is blocked with a reason and tried again a little
later; its earlier facts and limits stay in force, and running operators stay charged. Without a listener the
exception is raised, so that tests and the sandbox see it.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from mooring.core.model.decision import Verdict
from mooring.core.model.reasons import Reason, State

RETRY_AFTER_DEFECT_S: Final = 60.0


class Defects:
    def __init__(self) -> None:
        #: Called with where it happened and the exception. Without a listener the exception is raised.
        self.listener: Callable[[str, Exception], None] | None = None

    def note(self, where: str, error: Exception) -> None:
        if self.listener is None:
            raise error
        self.listener(where, error)

    def guard(self, where: str) -> "Guard":
        """Around every call into a capability: `with defects.guard(where) as guard: …`; then `guard.verdict`."""
        return Guard(self, where)


class Guard:
    __slots__ = ("_defects", "_where", "verdict")

    def __init__(self, defects: Defects, where: str) -> None:
        self._defects = defects
        self._where = where
        self.verdict = Verdict(State.BLOCKED, Reason.DEFECT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or self._defects.listener is None:
            return False
        self._defects.listener(self._where, error)
        words = f"{self._where}: nothing is decided, {type(error).__name__}: {error}"
        remedy = "report it with the traceback in the log; it is a defect"
        self.verdict = Verdict(State.BLOCKED, Reason.DEFECT, words[:300], remedy)
        return True
