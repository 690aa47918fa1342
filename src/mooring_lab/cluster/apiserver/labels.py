"""Label and field selectors, in both spellings: the object of a spec and the string of a query."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from mooring.clients.ports import Json, RefusedError
from mooring.core.model.cluster import Requirement

_SET: Final = re.compile(r"^\s*(\S+)\s+(in|notin)\s+\(([^)]*)\)\s*$")
_EQUALS: Final = re.compile(r"^\s*([^\s=!]+)\s*(==|=|!=)\s*([^\s]*)\s*$")
#: Commas between terms, not those inside parentheses.
_COMMA: Final = re.compile(r",(?![^(]*\))")

Predicate = Callable[[Json], bool]


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A LabelSelector. None selects nothing, an empty one everything."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(
        Requirement(e["key"], e["operator"], tuple(e.get("values") or ())).matches(labels)
        for e in selector.get("matchExpressions") or ()
    )


def parse_label_selector(text: str) -> tuple[Requirement, ...]:
    """`a=b,c!=d,e in (f,g),h,!i`."""
    found: list[Requirement] = []
    for term in filter(None, (t.strip() for t in _COMMA.split(text))):
        if match := _SET.match(term):
            operator = "In" if match[2] == "in" else "NotIn"
            found.append(Requirement(match[1], operator, tuple(v.strip() for v in match[3].split(","))))
        elif match := _EQUALS.match(term):
            found.append(Requirement(match[1], "NotIn" if match[2] == "!=" else "In", (match[3],)))
        elif term.startswith("!"):
            found.append(Requirement(term[1:].strip(), "DoesNotExist"))
        elif " " not in term:
            found.append(Requirement(term, "Exists"))
        else:
            raise RefusedError(f"unable to parse the label selector at {term!r}", 400)
    return tuple(found)


def parse_field_selector(text: str) -> tuple[tuple[tuple[str, ...], bool, str], ...]:
    """`spec.nodeName=n1,status.phase!=Running` → (path, equal, value)."""
    found: list[tuple[tuple[str, ...], bool, str]] = []
    for term in filter(None, text.split(",")):
        match = _EQUALS.match(term)
        if match is None:
            raise RefusedError(f"unable to parse the field selector at {term!r}", 400)
        found.append((tuple(match[1].split(".")), match[2] != "!=", match[3]))
    return tuple(found)


def predicate(label_selector: str = "", field_selector: str = "") -> Predicate | None:
    """A test for both together; None: everything passes."""
    requirements = parse_label_selector(label_selector)
    fields = parse_field_selector(field_selector)
    if not requirements and not fields:
        return None

    def passes(obj: Json) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(r.matches(labels) for r in requirements) and all(
            (_field(obj, path) == value) is equal for path, equal, value in fields
        )

    return passes


def _field(obj: Any, path: tuple[str, ...]) -> str:
    for part in path:
        obj = obj.get(part) if isinstance(obj, dict) else None
    if isinstance(obj, bool):
        return "true" if obj else "false"
    return "" if obj is None else str(obj)
