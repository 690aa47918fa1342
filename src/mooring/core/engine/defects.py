"""A defect of ours costs the object it shows on, not the whole cluster: one pod that a decider stumbles over must not
end the process that hands leaders over, again after every restart.

Whoever runs us for real listens, logs and counts. The key, or the operator, is held in words and tried again a little
later; what it stated before goes on to count, and what runs keeps its place. Where nobody listens a defect is raised:
tests and the sandbox shall see it.
"""

from collections.abc import Callable
from typing import Final

from mooring.core.model.decision import Verdict
from mooring.core.model.reasons import Reason, State

AGAIN_S: Final = 60.0


class Defects:
    def __init__(self) -> None:
        #: Told where, and what.
        self.listener: Callable[[str, Exception], None] | None = None

    def note(self, where: str, error: Exception) -> Verdict:
        if self.listener is None:
            raise error
        self.listener(where, error)
        words = f"{where}: nothing is decided, {type(error).__name__}: {error}"
        return Verdict(
            State.BLOCKED, Reason.DEFECT, words[:300], "report it with the traceback in the log; it is a defect"
        )
