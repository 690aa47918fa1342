"""`why`, asked of a running replica: one answer for the command and the page, with the age of what it stands on.

Everything comes from the world, but for one name: who wrote the annotation that asks. That one object is looked up, for
at most a second; without it the answer is the same, less a name.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from mooring.clients.ports import PortError
from mooring.core.engine.engine import Engine
from mooring.core.engine.why import Explanation, explain, render, unknown
from mooring.core.engine.why.names import BARE_KINDS, MOST_NEAR, SPACED, names_of, nearest, resolve
from mooring.core.engine.why.words import SHOWN
from mooring.core.model.decision import Line
from mooring.core.model.kinds import Kind
from mooring.core.model.spelling import near
from mooring.process.http.frames import silent_s
from mooring.process.replica import Replica

LOOK_S: Final = 1.0
_ANNOTATION: Final = re.compile(r"\bannotation ([a-z0-9.-]+/[A-Za-z0-9._-]+)(?:=\S+)?(?: on (\S+))?")
_KINDS: Final = {"pod": Kind.POD, "node": Kind.NODE}


def answer(replica: Replica, subject: str) -> Explanation | None:
    """None: not found (`unknown` names the nearest)."""
    return explain(
        replica.engine,
        subject,
        now=replica.shell.now(),
        leader=replica.elector.holder or "",
        data_age_s=silent_s(replica) if replica.informers.informers else None,
    )


async def full_answer(replica: Replica, subject: str, namespace: str = "") -> Explanation | None:
    """The same, with the asker's name where the API server knows it; a name that is unique needs no namespace."""
    found = answer(replica, subject)
    if found is None:
        meant = resolve(replica.engine, subject, namespace)
        found = answer(replica, meant[0]) if len(meant) == 1 else None
    asking = annotation_behind(found) if found is not None else None
    if found is None or asking is None:
        return found
    try:
        async with asyncio.timeout(LOOK_S):
            obj = await replica.api.get(_KINDS[asking.kind], asking.namespace, asking.name)
    except (PortError, TimeoutError):
        return found
    manager, at = manager_of(obj["metadata"].get("managedFields") or (), asking.key)
    return with_asker(found, manager, at) if manager else found


def not_found(engine: Engine, subject: str, namespace: str = "") -> str:
    """Why there is no answer: several are called so, or none is and these are near."""
    meant = resolve(engine, subject, namespace)
    if len(meant) > 1:
        more = f" and {len(meant) - 4} more" if len(meant) > 4 else ""
        return f"{subject} may be {', '.join(meant[:4])}{more}; write one of them"
    kind, slash, rest = subject.partition("/")
    if slash and namespace and kind in SPACED and "/" not in rest:
        subject = f"{kind}/{namespace}/{rest}"
    if not slash:
        every = {f"{kind}/{name}": name.rpartition("/")[2] for kind in BARE_KINDS for name in names_of(engine, kind)}
        like = set(near(subject, set(every.values()), MOST_NEAR))
        found = nearest(subject, every) or sorted(one for one, name in every.items() if name in like)[:MOST_NEAR]
        hint = f"; did you mean {' or '.join(found)}?" if found else "; write KIND/NAME, e.g. pod/demo-tikv-1 -n tidb"
        return f"nothing is called {subject}{hint}"
    return unknown(engine, subject)


# ── Who asked: the API server notes, field by field, which client wrote it last (`metadata.managedFields`) ──────────


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


__all__: Final = ["SHOWN", "answer", "full_answer", "not_found", "render", "unknown"]
