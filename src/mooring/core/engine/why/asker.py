"""Who asked: the API server notes, field by field, which client wrote it last (`metadata.managedFields`).

The world does not keep that (it is most of an object's bytes and no decision uses it), so code that answers a person
looks the one object up and adds the name.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from mooring.core.engine.why.explanation import Explanation
from mooring.core.model.decision import Line

_ANNOTATION: Final = re.compile(r"\bannotation ([a-z0-9.-]+/[A-Za-z0-9._-]+)(?:=\S+)?(?: on (\S+))?")


class AskingAnnotation(msgspec.Struct, frozen=True):
    """An annotation that asked for something, and the object that carries it."""

    kind: str
    namespace: str
    name: str
    key: str


def annotation_behind(answer: Explanation) -> AskingAnnotation | None:
    """The annotation behind this answer; None: something else asks, or nothing does."""
    asked = next((line.text for line in answer.lines if line.label == "asked"), "")
    found = _ANNOTATION.search(asked)
    if found is None:
        return None
    if found[2]:
        return AskingAnnotation("node", "", found[2], found[1])
    kind, *rest = answer.subject.split("/")
    if kind == "pod" and len(rest) == 2:
        return AskingAnnotation("pod", rest[0], rest[1], found[1])
    return AskingAnnotation("node", "", rest[0], found[1]) if kind == "node" and len(rest) == 1 else None


def manager_of(fields: Iterable[Mapping[str, Any]], key: str) -> tuple[str, str]:
    """The field manager that wrote this annotation, and when (RFC 3339); ("", ""): unknown."""
    for entry in fields:
        annotations = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:annotations") or {}
        if f"f:{key}" in annotations:
            return str(entry.get("manager", "")), str(entry.get("time", ""))
    return "", ""


def with_asker(answer: Explanation, manager: str, at: str) -> Explanation:
    """The same answer, naming the asker: `…, 10:02:11, field manager kubectl-annotate`."""
    when = f", {at[11:19]}" if len(at) >= 19 else ""
    lines, named = [], False
    for line in answer.lines:
        if line.label == "asked" and not named:
            named = True
            line = Line("asked", f"{line.text}{when}, field manager {manager}")
        lines.append(line)
    return msgspec.structs.replace(answer, lines=tuple(lines))
