"""What must survive a restart of the process so that no move is repeated in a loop: a ConfigMap, one key per subject.

A note is written *before* the step that it guards, as if the step had failed; success removes it. So a crash in
between leads to a pause and never to a loop. Each note is a data key of its own: two notes never overwrite each other,
and a merge patch needs no compare-and-swap.

The map is bounded: with every note the oldest beyond `MAX_NOTES` go, and so do those older than a day.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mooring.core.model.cluster import ConfigMap, Key
from mooring.core.model.instructions import Create, HarmlessWrite, Patch
from mooring.core.model.kinds import Kind

NAME: Final = "mooring-mix-memory"
MAX_NOTES: Final = 500
FORGOTTEN_AFTER_S: Final = 24 * 3600.0


class Note(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, rename="camel"):
    """What is remembered of one subject (a workload, by uid)."""

    #: Left alone until then.
    until: float = 0.0
    #: Failures in a row.
    attempts: int = 0
    #: When something of it was last moved.
    last_move: float = 0.0
    #: A step is under way; how far off the subject was before, and what it then wanted.
    begun: bool = False
    reason: str = ""
    off_by: int = 0
    wanted: str = ""
    #: When a successor was found that no webhook of ours had admitted.
    unadmitted_at: float = 0.0
    #: Until then its on-demand pods only prefer on-demand: it was full.
    relaxed_until: float = 0.0


_decode: Final = msgspec.json.Decoder(Note).decode
NOTHING: Final = Note()


def key(namespace: str) -> Key:
    return Key(namespace, NAME)


def read(memory: ConfigMap | None, subject: str) -> Note:
    """A note that cannot be read counts as none: it costs one more attempt."""
    text = memory.data.get(subject) if memory is not None else None
    if text is None:
        return NOTHING
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return NOTHING


def write(memory: ConfigMap | None, where: Key, subject: str, note: Note | None, now: float, why: str) -> HarmlessWrite:
    """Write one note, or remove it (None)."""
    text = None if note is None else msgspec.json.encode(note).decode()
    if memory is None:
        return Create(kind=Kind.CONFIG_MAP, object=_config_map(where, {subject: text} if text else {}), why=why)
    data: dict[str, Any] = dict.fromkeys(stale(memory.data, now))
    data[subject] = text
    return Patch(kind=Kind.CONFIG_MAP, key=where, uid=memory.uid, patch={"data": data}, why=why)


def stale(data: Mapping[str, str], now: float) -> list[str]:
    """Notes that are no longer needed: day-old ones, then the oldest beyond the bound."""
    ages: list[tuple[float, str]] = []
    for key in sorted(data):
        try:
            note = _decode(data[key])
        except (msgspec.DecodeError, RecursionError):
            ages.append((0.0, key))
            continue
        ages.append((max(note.until, note.last_move), key))
    ages.sort()
    beyond = max(0, len(ages) - MAX_NOTES + 1)
    return [key for place, (at, key) in enumerate(ages) if place < beyond or at < now - FORGOTTEN_AFTER_S]


def _config_map(where: Key, data: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "namespace": where.namespace,
            "name": where.name,
            "labels": {"app.kubernetes.io/managed-by": "mooring"},
        },
        "data": dict(data),
    }
