"""The default values of a query's variables: `$notHaving: MachineParams = {roles: ["boot"] states: [RETIRED]}`.

A variable that is not sent has its default; one that is sent as null is null.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from mooring.clients.ports import Json

_VARIABLE: Final = re.compile(r"\$(\w+)\s*:\s*\w+!?\s*=")
_TOKEN: Final = re.compile(r'[{}\[\]:]|"[^"]*"|-?\w+')


def with_defaults(query: str, variables: Json) -> Json:
    """The variables sent, and the query's defaults for the others. Raises ValueError."""
    filled = dict(variables)
    for match in _VARIABLE.finditer(query):
        if match[1] not in filled:
            filled[match[1]] = _value(_tokens(query, match.end()))
    return filled


def _tokens(query: str, start: int) -> Iterator[str]:
    return (match[0] for match in _TOKEN.finditer(query, start))


def _value(tokens: Iterator[str]) -> Any:
    return _parse(next(tokens, ""), tokens)


def _parse(word: str, tokens: Iterator[str]) -> Any:
    if word == "{":
        found: Json = {}
        while (key := next(tokens, "")) != "}":
            if next(tokens, "") != ":":
                raise ValueError(f"a default value is not understood near {key!r}")
            found[key] = _value(tokens)
        return found
    if word == "[":
        items = []
        while (item := next(tokens, "")) != "]":
            items.append(_parse(item, tokens))
        return items
    if word.startswith('"'):
        return word[1:-1]
    if word.lstrip("-").isdigit():
        return int(word)
    if word in ("", "}", "]", ":"):
        raise ValueError("a default value breaks off")
    return {"null": None, "true": True, "false": False}.get(word, word)
