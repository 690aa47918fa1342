"""The patch forms that clients send, applied copy-on-write: what did not change stays the same Python object.

- JSON patch (RFC 6902). One that does not fit raises `PatchFailed`, a `ConflictError`: nothing was changed.
- JSON merge patch (RFC 7386).
- Strategic merge patch, as far as kubectl and we send it: lists with a merge key are merged by it, finalizers are a
  set, `$patch`, `$retainKeys` and `$deleteFromPrimitiveList` are obeyed; everything else is a merge patch. Taints and
  tolerations have no merge key in Kubernetes: they are replaced whole.
"""

from typing import Any, Final

from mooring.clients.ports import ConflictError, Json, JsonPatch, PatchType, RefusedError


class PatchError(ConflictError):
    """A JSON patch did not fit the object: a `test` did not hold, a path is not there. The API server answers 422, with
    the same words for both."""


#: Field name → merge key, where the API types declare one. `ports` is decided by what is in it.
MERGE_KEYS: Final[dict[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "conditions": "type",
    "evictionResponders": "name",
    "requesters": "name",
    "targetResponders": "name",
    "responders": "name",
    "addresses": "type",
    "ownerReferences": "uid",
    "webhooks": "name",
}
PRIMITIVE_SETS: Final = frozenset({"finalizers"})
_LIST_DIRECTIVES: Final = ("$setElementOrder/", "$deleteFromPrimitiveList/")


def apply_patch(obj: Json, patch: Json | JsonPatch, patch_type: PatchType) -> Json:
    match patch_type:
        case PatchType.JSON:
            if not isinstance(patch, list):
                raise RefusedError("a JSON patch is a list of operations", 400)
            return json_patch(obj, patch)
        case PatchType.MERGE | PatchType.STRATEGIC:
            if not isinstance(patch, dict):
                raise RefusedError("a merge patch is an object", 400)
            merged = merge_patch(obj, patch) if patch_type is PatchType.MERGE else strategic_patch(obj, patch)
            return merged if isinstance(merged, dict) else {}
        case _:
            raise RefusedError(f"patch type {patch_type.value} is not served here", 415)


# ── RFC 7386 ──────────────────────────────────────────────────────────────────────────────────────────────────────


def merge_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


# ── RFC 6902 ──────────────────────────────────────────────────────────────────────────────────────────────────────


def json_patch(obj: Json, operations: JsonPatch) -> Json:
    doc: Any = obj
    for operation in operations:
        doc = _apply_operation(doc, operation)
    if not isinstance(doc, dict):
        raise RefusedError("a JSON patch must leave an object", 422)
    return doc


def _apply_operation(doc: Any, operation: Json) -> Any:
    kind = operation.get("op")
    path = _pointer(operation.get("path"))
    match kind:
        case "test":
            if not same(_read(doc, path), operation.get("value")):
                raise PatchError(f"testing value {operation.get('path')} failed")
            return doc
        case "add" | "replace":
            if "value" not in operation:
                raise RefusedError(f"operation {kind} needs a value", 422)
            return _write(doc, path, str(kind), operation["value"])
        case "remove":
            return _write(doc, path, "remove", None)
        case "move" | "copy":
            source = _pointer(operation.get("from"))
            value = _read(doc, source)
            if kind == "move":
                doc = _write(doc, source, "remove", None)
            return _write(doc, path, "add", value)
        case _:
            raise RefusedError(f"unknown operation {kind!r} in a JSON patch", 400)


def same(left: Any, right: Any) -> bool:
    """JSON equality: `true` is not 1."""
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(v, right[k]) for k, v in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _pointer(text: Any) -> list[str]:
    if text == "":
        return []
    if not isinstance(text, str) or not text.startswith("/"):
        raise RefusedError(f"not a JSON pointer: {text!r}", 422)
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _index(items: list[Any], part: str, *, end: bool) -> int:
    if part == "-" and end:
        return len(items)
    if not part.isdigit() or int(part) > len(items) - (0 if end else 1):
        raise PatchError(f"array index {part!r} is out of bounds")
    return int(part)


def _missing(part: str) -> PatchError:
    return PatchError(f"the path of a JSON patch does not exist: {part!r}")


def _read(doc: Any, path: list[str]) -> Any:
    """A missing last member reads as None, as the API server's patch library has it."""
    for i, part in enumerate(path):
        if isinstance(doc, dict):
            if part not in doc:
                if i == len(path) - 1:
                    return None
                raise _missing(part)
            doc = doc[part]
        elif isinstance(doc, list):
            doc = doc[_index(doc, part, end=False)]
        else:
            raise _missing(part)
    return doc


def _write(doc: Any, path: list[str], how: str, value: Any) -> Any:
    if not path:
        if how == "remove":
            raise RefusedError("the whole object cannot be removed by a patch", 422)
        return value
    part, rest = path[0], path[1:]
    if isinstance(doc, dict):
        if rest:
            if part not in doc:
                raise _missing(part)
            return {**doc, part: _write(doc[part], rest, how, value)}
        if how != "add" and part not in doc:
            raise _missing(part)
        if how == "remove":
            return {k: v for k, v in doc.items() if k != part}
        return {**doc, part: value}
    if isinstance(doc, list):
        index = _index(doc, part, end=how == "add" and not rest)
        items = list(doc)
        if rest:
            items[index] = _write(items[index], rest, how, value)
        elif how == "add":
            items.insert(index, value)
        elif how == "remove":
            del items[index]
        else:
            items[index] = value
        return items
    raise _missing(part)


# ── Strategic merge ───────────────────────────────────────────────────────────────────────────────────────────────


def strategic_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {k: v for k, v in patch.items() if k != "$patch"}
    if directive == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    retain = patch.get("$retainKeys")
    if isinstance(retain, list):
        result = {k: v for k, v in result.items() if k in retain}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.split("/", 1)[1]
            result[field] = [item for item in result.get(field) or [] if item not in value]
        elif key.startswith(_LIST_DIRECTIVES) or key in {"$patch", "$retainKeys"}:
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            result[key] = _merge_list(key, result.get(key), value)
        else:
            result[key] = strategic_patch(result.get(key), value)
    return result


def _merge_key(field: str, items: list[Any]) -> str | None:
    if field == "ports":
        return "containerPort" if any("containerPort" in i for i in items if isinstance(i, dict)) else "port"
    return MERGE_KEYS.get(field)


def _merge_list(field: str, have: Any, patch: list[Any]) -> list[Any]:
    current: list[Any] = list(have) if isinstance(have, list) else []
    if field in PRIMITIVE_SETS:
        return current + [item for item in patch if item not in current]
    key = _merge_key(field, patch)
    if key is None or not all(isinstance(item, dict) for item in patch):
        return patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    for item in patch:
        at = next((i for i, old in enumerate(current) if old.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del current[at]
        elif at is None:
            current.append(strategic_patch(None, item))
        else:
            current[at] = strategic_patch(current[at], item)
    return current
