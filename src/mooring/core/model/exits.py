"""Errors that a person can fix, as one exception; and the exit codes of all commands."""

from enum import IntEnum


class Exit(IntEnum):
    DONE = 0
    CHECK_FAILED = 1
    USAGE = 2
    REFUSED = 3
    UNREACHABLE = 4


class UserError(Exception):
    """Ends a command. The message says what, where, and what would be right."""

    code: Exit = Exit.USAGE

    def __init__(self, message: str, code: Exit | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
