"""Errors that a person can fix, as one exception; and the exit codes of all commands."""

from enum import IntEnum


class Exit(IntEnum):
    DONE = 0
    NOT_AS_IT_SHOULD_BE = 1
    USAGE = 2
    REFUSED = 3
    COULD_NOT_LOOK = 4


class UserError(Exception):
    """Ends a command. The message says what, where, and what would be right."""

    code: Exit = Exit.USAGE

    def __init__(self, message: str, code: Exit | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
