"""Everything that was written, one line each: what two runs with one seed are compared by."""

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.sandbox.apiserver.store import ObjectStore
from mooring.sandbox.controllers import podstate


class EventLog:
    def __init__(self, store: ObjectStore) -> None:
        self._timeline = store.timeline
        self._lines: list[str] = []
        store.listen(self._heard)

    def __len__(self) -> int:
        return len(self._lines)

    def text(self) -> str:
        return "".join(self._lines)

    def note(self, words: str) -> None:
        """Something that happened besides writes: a notice, a fault."""
        self._lines.append(f"{self._timeline.monotonic():.6f} NOTE {words}\n")

    def _heard(self, kind: Kind, event: str, old: Json | None, new: Json | None) -> None:
        obj = new or old
        if obj is None:
            return
        meta = obj["metadata"]
        where = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
        self._lines.append(
            f"{self._timeline.monotonic():.6f} {event} {kind.value} {where} rv={meta['resourceVersion']} "
            f"uid={meta['uid']}{_summary(kind, obj)}\n"
        )


def _summary(kind: Kind, obj: Json) -> str:
    status = obj.get("status") or {}
    match kind:
        case Kind.POD:
            words = f" node={podstate.node_of(obj) or '-'} phase={podstate.phase_of(obj)} ready={podstate.ready(obj)}"
            return f"{words} leaving" if podstate.terminating(obj) else words
        case Kind.NODE:
            ready = podstate.condition(obj, "Ready")
            taints = ",".join(f"{t['key']}:{t['effect']}" for t in obj["spec"].get("taints") or ())
            return f" ready={ready['status'] if ready else '-'} taints={taints or '-'}"
        case Kind.DEPLOYMENT | Kind.REPLICA_SET | Kind.STATEFUL_SET:
            wanted = (obj.get("spec") or {}).get("replicas")
            return f" wanted={wanted} have={status.get('replicas', 0)} ready={status.get('readyReplicas', 0)}"
        case _:
            return ""
