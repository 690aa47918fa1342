"""Numbers as people write them on a command line: what is no whole number is told, never rounded."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter, Token


def whole(_: Any, tokens: Sequence[Token]) -> int:
    text = tokens[0].value
    if not re.fullmatch(r"[-+]?[0-9]{1,30}", text, re.ASCII):
        raise ValueError(f"{text!r} is not a whole number such as 3")
    return int(text)


#: An `int` that is taken as it is written: the parser's own would make 2 of 1.5.
Whole = Annotated[int, Parameter(converter=whole)]


def processes(kind: Any, tokens: Sequence[Token]) -> int:
    number = whole(kind, tokens)
    if number < 0:
        raise ValueError(f"{number} processes are not possible; 0 means one per core")
    return number


#: How many run at a time; 0: one per core.
Jobs = Annotated[int, Parameter(converter=processes)]
