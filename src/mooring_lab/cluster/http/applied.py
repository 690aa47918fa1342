"""Server-side apply: who applied what, so that a field left out of the next apply goes and another's is not taken.

Only what was applied is remembered, by field manager. A field that was written in another way (an edit, a controller)
has no owner here: applying it sets it, where a real API server may answer with a conflict.
"""

from typing import Any

from mooring.clients.ports import ConflictError, Json, PatchType, RefusedError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.patch import MERGE_KEYS
from mooring_lab.cluster.apiserver.server import ApiServer

#: Parts of the object's address, never owned by a field manager.
_ADDRESS = ("name", "namespace", "managedFields")


class Applied:
    """What each field manager applied last, by the uid of the object."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._sets: dict[str, dict[str, Json]] = {}

    async def apply(self, kind: Kind, body: Json, subresource: str, manager: str, by: str, *, force: bool) -> Json:
        """Creates the object, or brings it to this body. RefusedError, ConflictError: nothing was changed."""
        if not manager:
            raise RefusedError("fieldManager is required for apply patch", 400)
        namespace, name = body["metadata"].get("namespace", ""), body["metadata"]["name"]
        current = self._server.store.find(kind, namespace, name)
        if current is None:
            made = await self._server.create(kind, body, by=by)
        else:
            by_key = kind not in {
                Kind.TIDB_CLUSTER,
                Kind.TIDB_V2,
            }  # as everywhere: no strategic patch of a custom resource
            patch = self._patch(current["metadata"]["uid"], manager, body, force=force, by_key=by_key)
            how = PatchType.STRATEGIC if by_key else PatchType.MERGE
            made = await self._server.patch(
                kind, namespace, name, patch, patch_type=how, by=by, subresource=subresource
            )
        self._sets.setdefault(made["metadata"]["uid"], {})[manager] = _fields(body)
        return made

    def _patch(self, uid: str, manager: str, body: Json, *, force: bool, by_key: bool) -> Json:
        """What brings the object to this body: its fields, and null for what the manager applied before and leaves out.

        `by_key`: lists with a merge key are merged by it (a strategic patch). ConflictError: another manager applied
        another value, and force is not set."""
        fields, sets = _fields(body), self._sets.get(uid, {})
        others = {name: one for name, one in sets.items() if name != manager}
        taken = [f'conflict with "{n}": {path}' for n, one in sorted(others.items()) for path in _differ(fields, one)]
        if taken and not force:
            plural = "s" if len(taken) > 1 else ""
            raise ConflictError(f"Apply failed with {len(taken)} conflict{plural}: {', '.join(taken)}")
        return _with_removals(sets.get(manager, {}), fields, list(others.values()), by_key=by_key)


def _fields(body: Json) -> Json:
    rest = {key: value for key, value in body.items() if key not in {"apiVersion", "kind", "metadata", "status"}}
    metadata = {k: v for k, v in (body.get("metadata") or {}).items() if k not in _ADDRESS}
    return rest | ({"metadata": metadata} if metadata else {})


def _differ(mine: Any, theirs: Any, path: str = "") -> list[str]:
    """Where both have a field and not the same value."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return [p for key in mine if key in theirs for p in _differ(mine[key], theirs[key], f"{path}.{key}")]
    return [] if mine == theirs or (isinstance(mine, list) and _key(path.rpartition(".")[2], mine)) else [path]


def _key(field: str, items: list[Any]) -> str:
    key = "containerPort" if field == "ports" else MERGE_KEYS.get(field, "")
    return key if key and all(isinstance(item, dict) and key in item for item in items) else ""


def _with_removals(before: Json, now: Json, others: list[Any], *, by_key: bool) -> Json:
    result: Json = dict(now)
    for name, old in before.items():
        theirs = [one[name] for one in others if isinstance(one, dict) and name in one]
        key = _key(name, old) if by_key and isinstance(old, list) else ""
        new = now.get(name)
        if isinstance(old, dict) and (name not in now or isinstance(new, dict)):
            result[name] = _with_removals(old, new or {}, theirs, by_key=by_key)
        elif key and (name not in now or isinstance(new, list)):
            result[name] = _items(key, old, new or [], [i for one in theirs if isinstance(one, list) for i in one])
        elif name not in now and not theirs:
            result[name] = None
    return result


def _items(key: str, before: list[Json], now: list[Json], theirs: list[Json]) -> list[Json]:
    known = {item[key]: item for item in before}
    wanted = {item.get(key) for item in now}
    kept = {item.get(key) for item in theirs}
    merged = [_with_removals(known.get(item.get(key), {}), item, [], by_key=True) for item in now]
    return merged + [{key: value, "$patch": "delete"} for value in known if value not in wanted | kept]
