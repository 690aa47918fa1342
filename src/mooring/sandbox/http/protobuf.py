r"""What `kubectl create` sends: Kubernetes' protobuf, read as far as kubectl's own generators write it.

A body is `k8s\0`, then an Unknown: the type, and the object as bytes. Only the fields below are read; one that is not
there and not empty is refused, since leaving it out silently would create something else than was asked for.
"""

from collections.abc import Iterator
from typing import Any, Final

from mooring.clients.ports import Json, RefusedError

MAGIC: Final = b"k8s\x00"
_TEXT, _NUMBER, _TEXTS, _MAP, _SKIP = "text", "number", "texts", "map", "skip"
_META: Final[dict[int, tuple[str, Any]]] = {
    1: ("name", _TEXT),
    2: ("generateName", _TEXT),
    3: ("namespace", _TEXT),
    8: ("creationTimestamp", _SKIP),
    11: ("labels", _MAP),
    12: ("annotations", _MAP),
}
_PORT: Final = {1: ("name", _TEXT), 2: ("hostPort", _SKIP), 3: ("containerPort", _NUMBER), 4: ("protocol", _TEXT)}
_CONTAINER: Final = {
    1: ("name", _TEXT),
    2: ("image", _TEXT),
    3: ("command", _TEXTS),
    4: ("args", _TEXTS),
    6: ("ports", [_PORT]),
    8: ("resources", _SKIP),
}
_TEMPLATE: Final = {1: ("metadata", _META), 2: ("spec", {2: ("containers", [_CONTAINER])})}
_DEPLOYMENT: Final = {
    1: ("replicas", _NUMBER),
    2: ("selector", {1: ("matchLabels", _MAP)}),
    3: ("template", _TEMPLATE),
    4: ("strategy", _SKIP),
}
_REST: Final = {2: ("spec", _SKIP), 3: ("status", _SKIP)}
KINDS: Final[dict[str, dict[int, tuple[str, Any]]]] = {
    "Namespace": {1: ("metadata", _META), **_REST},
    "Deployment": {1: ("metadata", _META), 2: ("spec", _DEPLOYMENT), 3: ("status", _SKIP)},
    "ConfigMap": {1: ("metadata", _META), 2: ("data", _MAP)},
    "SelfSubjectAccessReview": {1: ("metadata", _META), **_REST},
    "SelfSubjectRulesReview": {1: ("metadata", _META), **_REST},
    "SelfSubjectReview": {1: ("metadata", _META), **_REST},
}


def read(raw: bytes) -> Json:
    """The object, as its JSON would be."""
    try:
        unknown = dict(_fields(raw.removeprefix(MAGIC)))
        about = {number: value.decode() for number, value in _fields(unknown[1])}
        version, kind = about.get(1, ""), about.get(2, "")
        schema = KINDS.get(kind)
        if schema is None:
            way = "kubectl create … --dry-run=client -o yaml | kubectl apply -f -"
            raise RefusedError(f"the sandbox reads protobuf of {', '.join(KINDS)}, not of {kind}; try: {way}", 415)
        return {"apiVersion": version, "kind": kind, **_object(unknown.get(2, b""), schema, kind)}
    except (KeyError, IndexError, UnicodeDecodeError, AttributeError) as error:
        raise RefusedError(f"the body cannot be read as protobuf: {error!r}", 400) from None


def _object(raw: bytes, schema: dict[int, tuple[str, Any]], where: str) -> Json:
    found: Json = {}
    for number, value in _fields(raw):
        name, kind = schema.get(number, ("", None))
        if kind == _SKIP or (kind is None and not value):
            continue
        if kind is None:
            raise RefusedError(
                f"the sandbox does not read field {number} of {where}; send JSON (kubectl apply -f)", 415
            )
        if kind == _TEXT:
            found[name] = value.decode()
        elif kind == _NUMBER:
            found[name] = value
        elif kind == _TEXTS:
            found.setdefault(name, []).append(value.decode())
        elif kind == _MAP:
            entry = dict(_fields(value))
            found.setdefault(name, {})[entry.get(1, b"").decode()] = entry.get(2, b"").decode()
        elif isinstance(kind, list):
            found.setdefault(name, []).append(_object(value, kind[0], name))
        else:
            found[name] = _object(value, kind, name)
    return {name: value for name, value in found.items() if value != ""}


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers with their values: whole numbers, or bytes."""
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        match key & 7:
            case 0:
                value, at = _varint(raw, at)
                yield key >> 3, value
            case 2:
                size, at = _varint(raw, at)
                if at + size > len(raw):
                    raise IndexError("a field ends after the body")
                yield key >> 3, raw[at : at + size]
                at += size
            case other:
                raise IndexError(f"wire type {other}")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = raw[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise IndexError("a number without end")
