"""Small builders: an operator with costs on targets, and events as plain tuples to compare."""

from mooring.core.model.operator import Operator
from mooring.core.queue import Accepted, Advanced, Ended, Ignored, Promoted, Rejected


def op(name, costs, *, source="s", subject=None, claims=(), phases=(), **rest):
    return Operator(
        id=name,
        source=source,
        kind="test",
        subject=f"region/{name}" if subject is None else subject,
        claims=tuple(claims),
        phases=(costs, *phases),
        **rest,
    )


def plain(events):
    return [_plain(event) for event in events]


def _plain(event):
    match event:
        case Accepted():
            return ("accepted", event.id)
        case Promoted():
            return ("promoted", event.id)
        case Advanced():
            return ("advanced", event.id, event.phase)
        case Rejected():
            return ("rejected", event.id, event.reason)
        case Ignored():
            return ("ignored", event.id, event.reason)
        case Ended():
            return (event.how.value, event.id, event.reason)
