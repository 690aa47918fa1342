"""ResourceQuota: what a namespace may hold, counted when something is created there.

Counted afresh from the store each time: a refusal is never stale. Only namespaces that have a quota pay for it.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Final

from mooring.clients.ports import Json, RefusedError
from mooring.core.model.kinds import RESOURCES, Kind
from mooring.sandbox.apiserver.rules import resource_name
from mooring.sandbox.apiserver.store import ObjectStore

_SUFFIX: Final[dict[str, Decimal]] = {
    "m": Decimal("0.001"),
    **{s: Decimal(1000) ** (i + 1) for i, s in enumerate(("k", "M", "G", "T", "P", "E"))},
    **{s: Decimal(1024) ** (i + 1) for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
}


def quantity(text: str | float) -> Decimal:
    """A Kubernetes quantity: 500m, 2, 1Gi."""
    text = str(text)
    for length in (2, 1):
        if text[-length:] in _SUFFIX:
            return Decimal(text[:-length]) * _SUFFIX[text[-length:]]
    return Decimal(text)


def check_quota(store: ObjectStore, kind: Kind, obj: Json) -> None:
    """Raises Refused (403) when a quota of the namespace has no room for this object."""
    if not store.count(Kind.RESOURCE_QUOTA):
        return
    namespace = obj["metadata"].get("namespace", "")
    for quota in store.list(Kind.RESOURCE_QUOTA, namespace):
        over: list[tuple[str, Decimal, Decimal, str]] = []
        for resource, hard in sorted((quota.get("spec", {}).get("hard") or {}).items()):
            measure = _measure(kind, resource)
            if measure is None:
                continue
            wants = measure(obj)
            used = sum((measure(other) for other in store.list(kind, namespace) if _counts(kind, other)), Decimal(0))
            if wants > 0 and used + wants > quantity(hard):
                over.append((resource, wants, used, str(hard)))
        if over:
            name = obj["metadata"].get("name") or obj["metadata"].get("generateName", "")
            raise RefusedError(
                f'{resource_name(kind)} "{name}" is forbidden: exceeded quota: {quota["metadata"]["name"]}, '
                f"requested: {','.join(f'{r}={w.normalize():f}' for r, w, _, _ in over)}, "
                f"used: {','.join(f'{r}={u.normalize():f}' for r, _, u, _ in over)}, "
                f"limited: {','.join(f'{r}={h}' for r, _, _, h in over)}",
                403,
            )


class QuotaStatus:
    """Keeps `status.used` of every quota in step with what is there."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        store.listen(self._changed)

    def _changed(self, kind: Kind, event: str, old: Json | None, new: Json | None) -> None:
        if not self._store.count(Kind.RESOURCE_QUOTA):
            return
        obj = new or old
        namespace = obj["metadata"].get("namespace", "") if obj else ""
        if not namespace or (event == "MODIFIED" and kind not in {Kind.POD, Kind.RESOURCE_QUOTA}):
            return
        for quota in self._store.list(Kind.RESOURCE_QUOTA, namespace):
            self._store.mutate(Kind.RESOURCE_QUOTA, namespace, quota["metadata"]["name"], self._counted)

    def _counted(self, quota: Json) -> Json:
        hard = quota.get("spec", {}).get("hard") or {}
        used = {r: total for r in hard if (total := self._used(quota["metadata"]["namespace"], r)) is not None}
        return {**quota, "status": {"hard": hard, "used": {r: f"{u.normalize():f}" for r, u in used.items()}}}

    def _used(self, namespace: str, resource: str) -> Decimal | None:
        for kind in Kind:
            if measure := _measure(kind, resource):
                objects = self._store.list(kind, namespace)
                return sum((measure(obj) for obj in objects if _counts(kind, obj)), Decimal(0))
        return None


def _counts(kind: Kind, obj: Json) -> bool:
    return kind is not Kind.POD or obj.get("status", {}).get("phase") not in {"Succeeded", "Failed"}


def _measure(kind: Kind, resource: str) -> Callable[[Json], Decimal] | None:
    """How much of a quota's resource one object takes; None: nothing to do with it."""
    group = RESOURCES[kind].group
    counted = f"count/{RESOURCES[kind].plural}" + (f".{group}" if group else "")
    if resource == counted or (not group and resource == RESOURCES[kind].plural):
        return lambda _: Decimal(1)
    if kind is not Kind.POD:
        return None
    side, _, name = resource.rpartition(".")
    field = {"": "requests", "requests": "requests", "limits": "limits"}.get(side)
    if field is None or name not in {"cpu", "memory"}:
        return None
    return lambda pod: sum(
        (
            quantity((c.get("resources") or {}).get(field, {}).get(name, 0))
            for c in pod.get("spec", {}).get("containers") or ()
        ),
        Decimal(0),
    )
