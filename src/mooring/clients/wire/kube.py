"""Kubernetes JSON ↔ the model: decode what the API server sends, project what the sandbox holds.

Both answer in the slim rows of `mooring.core.model`; the full object is never kept. The promise: an object that the API
server accepts never raises here. A field that is missing, null or of an unexpected type counts as absent, and one odd
object does not cost the page it came in. Only bytes that are not JSON raise (`msgspec.DecodeError`), and a kind that
the world does not keep (`ValueError`).
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec

from mooring.clients.wire import objects, pods
from mooring.clients.wire.fields import (
    Wire,
    WireClaim,
    WireConfigMap,
    WireEviction,
    WireNode,
    WireNodeClaim,
    WirePdb,
    WirePod,
    WireTidbCluster,
    WireV2Cluster,
    WireVolume,
    WireWorkload,
)
from mooring.clients.wire.tidb import tidb_cluster, v2_cluster
from mooring.core.model.events import Object
from mooring.core.model.kinds import Kind

S = TypeVar("S", bound=msgspec.Struct)


class _ListMeta(Wire, frozen=True):
    resource_version: str | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Form(msgspec.Struct, frozen=True):
    """How one kind is read: its wire struct, a decoder for one, a decoder for a page, the projection."""

    struct: Any
    one: msgspec.json.Decoder[Any]
    page: msgspec.json.Decoder[Any]
    project: Callable[[Any], Object]


def _form(struct: type[S], project: Callable[[S], Object]) -> _Form:
    page = msgspec.defstruct(
        f"{struct.__name__}List",
        [
            ("metadata", _ListMeta | None, None),
            ("items", tuple[struct, ...] | None, None),  # type: ignore[valid-type]
        ],
        frozen=True,
        gc=False,
    )
    return _Form(struct, msgspec.json.Decoder(struct), msgspec.json.Decoder(page), project)


_FORMS: Final[dict[Kind, _Form]] = {
    Kind.POD: _form(WirePod, pods.pod),
    Kind.NODE: _form(WireNode, objects.node),
    Kind.NODE_CLAIM: _form(WireNodeClaim, objects.node_claim),
    Kind.EVICTION: _form(WireEviction, objects.eviction),
    Kind.DEPLOYMENT: _form(WireWorkload, objects.deployment),
    Kind.STATEFUL_SET: _form(WireWorkload, objects.stateful_set),
    Kind.ROLLOUT: _form(WireWorkload, objects.rollout),
    Kind.CLONE_SET: _form(WireWorkload, objects.clone_set),
    Kind.REPLICA_SET: _form(WireWorkload, objects.replica_set),
    Kind.PDB: _form(WirePdb, objects.pdb),
    Kind.PV: _form(WireVolume, objects.volume),
    Kind.PVC: _form(WireClaim, objects.claim),
    Kind.CONFIG_MAP: _form(WireConfigMap, objects.config_map),
    Kind.TIDB_CLUSTER: _form(WireTidbCluster, tidb_cluster),
    Kind.TIDB_V2: _form(WireV2Cluster, v2_cluster),
}

#: The kinds that can be read here.
KINDS: Final[frozenset[Kind]] = frozenset(_FORMS)


class _RawList(msgspec.Struct, frozen=True):
    metadata: _ListMeta | None = None
    items: tuple[msgspec.Raw, ...] | None = None


_RAW_LIST: Final = msgspec.json.Decoder(_RawList)
_RAW_MAP: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NOTHING: Final = msgspec.Raw(b"")


def decode(kind: Kind, raw: bytes | msgspec.Raw) -> Object:
    """One object from its JSON."""
    form = _form_of(kind)
    try:
        wire = form.one.decode(raw)
    except msgspec.ValidationError:
        wire = _forgiving(form.struct, raw)
    return form.project(wire)


def decode_list(kind: Kind, raw: bytes) -> tuple[tuple[Object, ...], str, str]:
    """One page of a list: its objects, its resourceVersion, its continue token ("" on the last page)."""
    form = _form_of(kind)
    try:
        page = form.page.decode(raw)
    except msgspec.ValidationError:
        page = _RAW_LIST.decode(raw)
        return (tuple([decode(kind, item) for item in page.items or ()]), *_position(page.metadata))
    read = form.project
    return (tuple([read(wire) for wire in page.items or ()]), *_position(page.metadata))


def project(kind: Kind, obj: dict[str, Any]) -> Object:
    """One object from plain JSON values. `obj` is not kept and not changed."""
    form = _form_of(kind)
    try:
        wire = msgspec.convert(obj, form.struct)
    except msgspec.ValidationError:
        wire = _forgiving(form.struct, msgspec.json.encode(obj))
    return form.project(wire)


def _form_of(kind: Kind) -> _Form:
    form = _FORMS.get(kind)
    if form is None:
        raise ValueError(f"{kind} is not a kind that the world keeps; it keeps {', '.join(sorted(KINDS))}")
    return form


def _position(meta: _ListMeta | None) -> tuple[str, str]:
    return ((meta.resource_version or "", meta.continue_ or "")) if meta else ("", "")


def _forgiving(struct: type[S], raw: bytes | msgspec.Raw) -> S:
    """As `struct`, with each field that does not fit left at its default. Nothing is built of what is not asked for: it
    may be half a million lists."""
    found, parts = {}, _parts_of(struct)
    try:
        given = parts.decode(raw)
    except msgspec.ValidationError:
        return struct()
    for field in msgspec.structs.fields(struct):
        part = getattr(given, field.name)
        if not bytes(part):
            continue
        try:
            found[field.name] = msgspec.json.decode(part, type=field.type, strict=False)
        except msgspec.ValidationError:
            inner, is_map = _struct_in(field.type)
            if inner is not None and memoryview(part)[:1].tobytes() == b"{":
                found[field.name] = _forgiving_map(inner, part) if is_map else _forgiving(inner, part)
    return struct(**found)


def _forgiving_map(struct: type[S], raw: msgspec.Raw) -> dict[str, S]:
    try:
        entries = _RAW_MAP.decode(raw)
    except msgspec.ValidationError:
        return {}
    return {name: _forgiving(struct, part) for name, part in entries.items()}


@cache
def _parts_of(struct: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    """Its fields, unread."""
    fields = [
        (field.name, msgspec.Raw, msgspec.field(default=_NOTHING, name=field.encode_name))
        for field in msgspec.structs.fields(struct)
    ]
    return msgspec.json.Decoder(msgspec.defstruct(f"{struct.__name__}Parts", fields, frozen=True))


def _struct_in(annotation: Any) -> tuple[type[msgspec.Struct] | None, bool]:
    """The struct of `X`, `X | None` or `dict[str, X] | None`, and whether it is a map of them."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return candidate, False
        if get_origin(candidate) is dict:
            return _struct_in(get_args(candidate)[1])[0], True
    return None, False
