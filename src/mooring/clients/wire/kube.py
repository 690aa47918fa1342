"""Kubernetes JSON ↔ the model: decode what the API server sends, project what the sandbox holds.

Both answer in the slim rows of `mooring.core.model`; the full object is never kept. The promise: an object that the API
server accepts never raises here. A field that is missing, null or of an unexpected type counts as absent, and one odd
object does not cost the page it came in. Only bytes that are not JSON raise (`msgspec.DecodeError`), and a kind that
the world does not keep (`ValueError`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, get_args

import msgspec

from mooring.clients.wire import objects, pods
from mooring.clients.wire.fields import (
    Meta,
    Wire,
    WireClaim,
    WireConfigMap,
    WireNode,
    WireNodeClaim,
    WirePdb,
    WirePod,
    WireVolume,
    WireWorkload,
)
from mooring.clients.wire.tidb import tidb_cluster
from mooring.core.model.events import Object
from mooring.core.model.kinds import Kind
from mooring.core.model.limits import is_dense

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


def _tidb_cluster(obj: Mapping[str, Any]) -> Object:
    return tidb_cluster(_forgiving(Meta, obj.get("metadata")), obj)


_FORMS: Final[dict[Kind, _Form]] = {
    Kind.POD: _form(WirePod, pods.pod),
    Kind.NODE: _form(WireNode, objects.node),
    Kind.NODE_CLAIM: _form(WireNodeClaim, objects.node_claim),
    Kind.DEPLOYMENT: _form(WireWorkload, objects.deployment),
    Kind.STATEFUL_SET: _form(WireWorkload, objects.stateful_set),
    Kind.REPLICA_SET: _form(WireWorkload, objects.replica_set),
    Kind.PDB: _form(WirePdb, objects.pdb),
    Kind.PV: _form(WireVolume, objects.volume),
    Kind.PVC: _form(WireClaim, objects.claim),
    Kind.CONFIG_MAP: _form(WireConfigMap, objects.config_map),
}

#: The kinds that can be read here.
KINDS: Final[frozenset[Kind]] = frozenset({*_FORMS, Kind.TIDB_CLUSTER})


class _RawList(msgspec.Struct, frozen=True):
    metadata: _ListMeta | None = None
    items: tuple[msgspec.Raw, ...] | None = None


_RAW_LIST: Final = msgspec.json.Decoder(_RawList)
_PLAIN: Final = msgspec.json.Decoder()


class _Who(msgspec.Struct, frozen=True):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_WHO: Final = msgspec.json.Decoder(_Who)


def decode(kind: Kind, raw: bytes | msgspec.Raw) -> Object:
    """One object from its JSON."""
    if kind is Kind.TIDB_CLUSTER:
        return project(kind, _plain(raw))
    form = _form_of(kind)
    try:
        wire = form.one.decode(raw)
    except msgspec.ValidationError:
        wire = _forgiving(form.struct, _plain(raw))
    return form.project(wire)


def _plain(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """The object as plain values. Of one that was made to be large in memory only who it is: a free-form field may hold
    half a million lists."""
    body = bytes(raw)
    if is_dense(body):
        metadata = bytes(_WHO.decode(body).metadata) if body.lstrip()[:1] == b"{" else b"{}"
        return {"metadata": {} if is_dense(metadata) else _PLAIN.decode(metadata)}
    plain = _PLAIN.decode(body)
    return plain if isinstance(plain, dict) else {}


def decode_list(kind: Kind, raw: bytes) -> tuple[tuple[Object, ...], str, str]:
    """One page of a list: its objects, its resourceVersion, its continue token ("" on the last page)."""
    page: Any
    if kind is not Kind.TIDB_CLUSTER:
        form = _form_of(kind)
        try:
            page = form.page.decode(raw)
        except msgspec.ValidationError:
            pass
        else:
            read = form.project
            return (tuple([read(wire) for wire in page.items or ()]), *_position(page.metadata))
    page = _RAW_LIST.decode(raw)
    return (tuple([decode(kind, item) for item in page.items or ()]), *_position(page.metadata))


def project(kind: Kind, obj: dict[str, Any]) -> Object:
    """One object from plain JSON values. `obj` is not kept and not changed."""
    if kind is Kind.TIDB_CLUSTER:
        return _tidb_cluster(obj)
    form = _form_of(kind)
    try:
        wire = msgspec.convert(obj, form.struct)
    except msgspec.ValidationError:
        wire = _forgiving(form.struct, obj)
    return form.project(wire)


def _form_of(kind: Kind) -> _Form:
    form = _FORMS.get(kind)
    if form is None:
        raise ValueError(f"{kind} is not a kind that the world keeps; it keeps {', '.join(sorted(KINDS))}")
    return form


def _position(meta: _ListMeta | None) -> tuple[str, str]:
    return ((meta.resource_version or "", meta.continue_ or "")) if meta else ("", "")


def _forgiving(struct: type[S], value: Any) -> S:
    """`value` as `struct`, with each field that does not fit left at its default."""
    if not isinstance(value, dict):
        return struct()
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        if field.encode_name not in value:
            continue
        given = value[field.encode_name]
        try:
            fields[field.name] = msgspec.convert(given, field.type, strict=False)
        except msgspec.ValidationError:
            part = _struct_in(field.type)
            if part is not None and isinstance(given, dict):
                fields[field.name] = _forgiving(part, given)
    return struct(**fields)


def _struct_in(annotation: Any) -> type[msgspec.Struct] | None:
    """The struct of `X` or `X | None`."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return candidate
    return None
