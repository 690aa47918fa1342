"""Exit codes and the one exception that carries them to the top."""

from enum import IntEnum


class Exit(IntEnum):
    DONE = 0
    NOT_AS_IT_SHOULD_BE = 1
    USAGE = 2
    REFUSED = 3
    COULD_NOT_LOOK = 4


class CommandError(Exception):
    """Ends a command. The message says what, where, and what would be right."""

    def __init__(self, message: str, code: Exit = Exit.USAGE) -> None:
        super().__init__(message)
        self.code = code
