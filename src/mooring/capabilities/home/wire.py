"""The extender's requests, extender/v1, and as few of their bytes looked at as possible (`answers` writes).

kube-scheduler writes Capitalised keys without regard to what is empty (`null` everywhere), older ones wrote small
letters; both are read. Nodes, or in a large request their fields, are sliced out as they stand and sent back untouched,
since kube-scheduler takes the answer's Node objects for the truth. Nothing inside them is read but, for a member, their
names.

A request is untrusted: no body, however it is built, becomes more than a few times its own size in memory. So the names
in a large one are counted before they are decoded, and its full Nodes are read by the fields that the API server stores
(`fullnodes`). What does not look like that is counted first, which takes nearly as long as reading it. Nodes that only
pass through, since the pod is none of ours, are not taken apart at all.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from mooring.core.model.cluster import NO_LABELS, Owner

# ── Fullnodes ───────────────────────────────────────────────────────────────────────────────────────────────────────
#
# Full Nodes in an extender's request: the bytes that came, as one piece or by their fields.
#
# A list of pieces is as long as its sender likes: `{},{},…` takes twenty times its size in memory. The fields that the
# API server stores have names, which make even the shortest Node 15 bytes long, so a list of those needs no counting.

ABSENT: Final = msgspec.Raw(b"null")


class NodeFields(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A Node with the fields that the API server stores, and no others. It takes eight times its size at most."""

    metadata: msgspec.Raw
    spec: msgspec.Raw = ABSENT
    status: msgspec.Raw = ABSENT
    kind: msgspec.Raw = ABSENT
    version: msgspec.Raw = msgspec.field(default=ABSENT, name="apiVersion")

    def pieces(self) -> list[bytes | msgspec.Raw]:
        """What to join to have one object again."""
        found: list[bytes | msgspec.Raw] = [b'{"metadata":', self.metadata]
        for name, value in (
            (b',"spec":', self.spec),
            (b',"status":', self.status),
            (b',"kind":', self.kind),
            (b',"apiVersion":', self.version),
        ):
            if value is not ABSENT:
                found += (name, value)
        found.append(b"}")
        return found


class NodeList(msgspec.Struct, frozen=True, gc=False):
    """Each Node in one piece."""

    items: list[msgspec.Raw] | None = None


class StoredNodes(msgspec.Struct, frozen=True, gc=False):
    """Each Node by its fields."""

    items: list[NodeFields] | None = None


#: How Go begins a Node: its name is the first thing in it. And ExtenderArgs: the pod, then the Nodes.
_NODE_HEAD: Final = re.compile(rb'\{"metadata":\{"name":"([^"\\]{1,253})"')
_META_HEAD: Final = re.compile(rb'\{"name":"([^"\\]{1,253})"')
_POD_FIRST: Final = b'{"Pod":'
_NODES_NEXT: Final = b',"Nodes":'


#: Kubernetes supports 5,000 nodes; this is four times as many.
MOST_NODES: Final = 20_000
#: A body of this size needs no counting: what it can become is small.
_SMALL: Final = 1 << 20
#: Bytes that one node's name may take: 253, its quotes and a comma.
_NAME: Final = 256
#: Commas in full Nodes (5,000 of 7 KB have about a million) and in victims (they are given for some nodes only).
_MOST_IN_NODES: Final = 2_500_000
_MOST_IN_VICTIMS: Final = 500_000
#: etcd stores no larger object.
_LARGEST_POD: Final = 2 << 20


class BadRequestError(ValueError):
    """Not what a scheduler sends; the message says what would be right."""


class TooManyError(BadRequestError):
    """More than any cluster has."""


class _OwnerRef(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    api_version: str = msgspec.field(default="", name="apiVersion")


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    owners: tuple[_OwnerRef, ...] | None = msgspec.field(default=None, name="ownerReferences")


class _Object(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta | None = None


_BRACE: Final = ord("{")


class _Args(msgspec.Struct, frozen=True, gc=False):
    """ExtenderArgs in both casings."""

    pod: _Object | None = msgspec.field(default=None, name="Pod")
    pod_small: _Object | None = msgspec.field(default=None, name="pod")
    nodes: NodeList | None = msgspec.field(default=None, name="Nodes")
    nodes_small: NodeList | None = msgspec.field(default=None, name="nodes")
    names: list[str] | None = msgspec.field(default=None, name="NodeNames")
    names_small: list[str] | None = msgspec.field(default=None, name="nodenames")
    names_camel: list[str] | None = msgspec.field(default=None, name="nodeNames")


class _RawArgs(msgspec.Struct, frozen=True, gc=False):
    """The same, nothing inside decoded yet."""

    pod: msgspec.Raw = msgspec.field(default=ABSENT, name="Pod")
    pod_small: msgspec.Raw = msgspec.field(default=ABSENT, name="pod")
    nodes: msgspec.Raw = msgspec.field(default=ABSENT, name="Nodes")
    nodes_small: msgspec.Raw = msgspec.field(default=ABSENT, name="nodes")
    names: msgspec.Raw = msgspec.field(default=ABSENT, name="NodeNames")
    names_small: msgspec.Raw = msgspec.field(default=ABSENT, name="nodenames")
    names_camel: msgspec.Raw = msgspec.field(default=ABSENT, name="nodeNames")


class _StoredArgs(_RawArgs, frozen=True, gc=False):
    """The same, but for Nodes as the API server stores them."""

    nodes: StoredNodes | None = msgspec.field(default=None, name="Nodes")  # type: ignore[assignment]
    nodes_small: StoredNodes | None = msgspec.field(default=None, name="nodes")  # type: ignore[assignment]


class _Identity(msgspec.Struct, frozen=True, gc=False):
    uid: str | None = None


class _VictimPod(msgspec.Struct, frozen=True, gc=False):
    """A MetaPod (`UID`), or a whole Pod."""

    uid: str | None = msgspec.field(default=None, name="UID")
    uid_small: str | None = msgspec.field(default=None, name="uid")
    metadata: _Identity | None = None


class _Victims(msgspec.Struct, frozen=True, gc=False):
    pods: list[_VictimPod] | None = msgspec.field(default=None, name="Pods")
    pods_small: list[_VictimPod] | None = msgspec.field(default=None, name="pods")
    violations: int | None = msgspec.field(default=None, name="NumPDBViolations")
    violations_small: int | None = msgspec.field(default=None, name="numPDBViolations")


class _PreemptArgs(msgspec.Struct, frozen=True, gc=False):
    pod: msgspec.Raw = msgspec.field(default=ABSENT, name="Pod")
    pod_small: msgspec.Raw = msgspec.field(default=ABSENT, name="pod")
    victims: dict[str, _Victims | None] | None = msgspec.field(default=None, name="NodeNameToVictims")
    victims_small: dict[str, _Victims | None] | None = msgspec.field(default=None, name="nodeNameToVictims")
    meta: dict[str, _Victims | None] | None = msgspec.field(default=None, name="NodeNameToMetaVictims")
    meta_small: dict[str, _Victims | None] | None = msgspec.field(default=None, name="nodeNameToMetaVictims")


_args = msgspec.json.Decoder(_Args)
_raw_args = msgspec.json.Decoder(_RawArgs)
_stored_args = msgspec.json.Decoder(_StoredArgs)
_preempt_args = msgspec.json.Decoder(_PreemptArgs)
_named = msgspec.json.Decoder(_Object)
_pod = msgspec.json.Decoder(_Object | None)
_meta = msgspec.json.Decoder(_Meta | None)
_nodes = msgspec.json.Decoder(NodeList | None)
_names = msgspec.json.Decoder(list[str] | None)


class AskedPod(msgspec.Struct, frozen=True, gc=False):
    """What of a pod decides whether it has a home."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    owner: Owner | None


class ExtenderRequest(msgspec.Struct, frozen=True, gc=False):
    """filter or prioritize: the pod and its candidates, as names, as full Nodes, or both."""

    pod: AskedPod | None
    given_names: list[str] | None
    #: Raw: not taken apart.
    given_nodes: NodeList | StoredNodes | msgspec.Raw | None

    def names(self) -> list[str]:
        """The candidates' names, from whichever form they came in."""
        return self.given_names if self.given_names is not None else self.node_names()

    def node_names(self) -> list[str]:
        """The names of the full Nodes, in their order."""
        return [_node_name(node) for node in self.items]

    @property
    def items(self) -> Sequence[msgspec.Raw | NodeFields]:
        nodes = _sliced(self.given_nodes) if isinstance(self.given_nodes, msgspec.Raw) else self.given_nodes
        return (nodes.items if nodes is not None else None) or []


class WireVictims(msgspec.Struct, frozen=True, gc=False):
    uids: tuple[str, ...]
    pdb_violations: int


class PreemptRequest(msgspec.Struct, frozen=True, gc=False):
    pod: AskedPod | None
    victims: Mapping[str, WireVictims]


_WANTED: Final = 'must be an ExtenderArgs object: {"Pod": …, "Nodes": …, "NodeNames": …}'
_WANTED_VICTIMS: Final = 'must be an ExtenderPreemptionArgs object: {"Pod": …, "NodeNameTo…": …}'


def pod_in_front(body: bytes) -> AskedPod | None:
    """The pod of a large body with full Nodes, without reading these. None: it is small, or does not begin as
    kube-scheduler begins it."""
    if len(body) <= _SMALL or not body.startswith(_POD_FIRST):
        return None
    end = body.find(_NODES_NEXT, len(_POD_FIRST), _LARGEST_POD)
    try:
        return _asked(_decoded_pod(msgspec.Raw(body[len(_POD_FIRST) : end]), _WANTED)) if end > 0 else None
    except BadRequestError:
        return None


def read_request(body: bytes, *, apart: bool = True) -> ExtenderRequest:
    """BadRequestError: not an ExtenderArgs. TooManyError: more candidates than any cluster has. `apart` False: the full
    Nodes of a large body are only to be passed on."""
    if len(body) > _SMALL:
        return _read_large(body, apart=apart)
    args: _Args = _decode(_args, body, _WANTED)
    names = args.names
    if names is None:
        names = args.names_small if args.names_small is not None else args.names_camel
    nodes = args.nodes if args.nodes is not None else args.nodes_small
    pod = args.pod if args.pod is not None else args.pod_small
    return ExtenderRequest(_asked(pod), _few_names(names), None if nodes is None else _checked(nodes))


def _read_large(body: bytes, *, apart: bool) -> ExtenderRequest:
    args: Any = _stored(body) if apart else None
    nodes: StoredNodes | NodeList | msgspec.Raw | None
    if args is not None:
        nodes = _few(args.nodes if args.nodes is not None else args.nodes_small)
    else:
        args = _decode(_raw_args, body, _WANTED)
        raw = args.nodes_small if _is_null(args.nodes) else args.nodes
        nodes = None if _is_null(raw) else raw if not apart else _sliced(raw)
    pod = _decoded_pod(args.pod_small if _is_null(args.pod) else args.pod, _WANTED)
    return ExtenderRequest(_asked(pod), _few_names(_first_names(args)), nodes)


_TOO_MANY_NAMES: Final = f"NodeNames has more than {MOST_NODES} names; no cluster has so many nodes"


def _few_names(names: list[str] | None) -> list[str] | None:
    if names is not None and len(names) > MOST_NODES:
        raise TooManyError(_TOO_MANY_NAMES)
    return names


def _stored(body: bytes) -> _StoredArgs | None:
    """None: something, if only a field of a Node, is not as kube-scheduler sends it."""
    try:
        return _stored_args.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _first_names(args: _RawArgs) -> list[str] | None:
    """Counted before they are decoded."""
    raw = next((n for n in (args.names, args.names_small, args.names_camel) if not _is_null(n)), ABSENT)
    text = bytes(raw)
    if text.count(b",") >= MOST_NODES or len(text) > MOST_NODES * _NAME:
        raise TooManyError(_TOO_MANY_NAMES)
    names: list[str] | None = _decode(_names, raw, _WANTED, "NodeNames")
    return names


def _sliced(raw: msgspec.Raw) -> NodeList | None:
    """Counted before it is decoded."""
    if bytes(raw).count(b",") > _MOST_IN_NODES:
        raise TooManyError(f"Nodes has more than {_MOST_IN_NODES} values; no cluster has so many nodes")
    nodes: NodeList | None = _decode(_nodes, raw, _WANTED, "Nodes")
    return None if nodes is None else _checked(nodes)


def _checked(nodes: NodeList) -> NodeList:
    if any(memoryview(raw)[0] != _BRACE for raw in _few(nodes).items or ()):
        raise BadRequestError("an item of Nodes is not an object; each is a Node")
    return nodes


def _few(nodes: Any) -> Any:
    if nodes is not None and len(nodes.items or ()) > MOST_NODES:
        raise TooManyError(f"Nodes has more than {MOST_NODES} items; no cluster has so many nodes")
    return nodes


def read_preempt(body: bytes) -> PreemptRequest:
    """BadRequestError: not an ExtenderPreemptionArgs. TooManyError: more victims than any scheduler considers."""
    if body.count(b",") > _MOST_IN_VICTIMS:
        raise TooManyError(f"the request has more than {_MOST_IN_VICTIMS} values; set nodeCacheCapable: true")
    args = _decode(_preempt_args, body, _WANTED_VICTIMS)
    given = args.meta or args.meta_small
    if given is None:
        given = args.victims or args.victims_small or {}
    pod = _decoded_pod(args.pod_small if _is_null(args.pod) else args.pod, _WANTED_VICTIMS)
    return PreemptRequest(_asked(pod), {name: _victims(v) for name, v in given.items()})


def _is_null(raw: msgspec.Raw) -> bool:
    return raw == ABSENT


def _decode(decoder: Any, data: Any, wanted: str, field: str = "") -> Any:
    where = f"{field}: " if field else ""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"{where}{error}; {wanted}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequestError(f"{where}not JSON: {error}; {wanted}") from None
    except RecursionError:
        raise BadRequestError(f"{where}nested too deep; {wanted}") from None


def _decoded_pod(raw: msgspec.Raw, wanted: str) -> _Object | None:
    if len(memoryview(raw)) > _LARGEST_POD:
        raise BadRequestError(f"Pod is larger than {_LARGEST_POD >> 20} MiB; the API server stores none of that size")
    pod: _Object | None = _decode(_pod, raw, wanted, "Pod")
    return pod


def _asked(pod: _Object | None) -> AskedPod | None:
    meta = pod.metadata if pod is not None else None
    if meta is None or not meta.name:
        return None
    owner = next((o for o in meta.owners or () if o.controller), None)
    return AskedPod(
        meta.namespace or "default",
        meta.name,
        meta.labels or NO_LABELS,
        None if owner is None else Owner(owner.kind, owner.name, owner.uid, owner.api_version),
    )


def _node_name(node: msgspec.Raw | NodeFields) -> str:
    """The name of a Node. As Go writes it the name comes first, and then the other 7 KB need not be read."""
    if isinstance(node, NodeFields):
        if found := _META_HEAD.match(node.metadata):
            return found[1].decode("utf-8", "replace")
        meta = _decode(_meta, node.metadata, "each item of Nodes is a Node")
        return (meta.name if meta is not None else None) or ""
    return _raw_name(node)


def _raw_name(raw: msgspec.Raw) -> str:
    if found := _NODE_HEAD.match(raw):
        return found[1].decode("utf-8", "replace")
    node = _decode(_named, raw, "each item of Nodes is a Node")
    return (node.metadata.name if node.metadata is not None else None) or ""


def _victims(given: _Victims | None) -> WireVictims:
    if given is None:
        return WireVictims((), 0)
    pods = given.pods or given.pods_small or ()
    return WireVictims(tuple(filter(None, map(_uid, pods))), given.violations or given.violations_small or 0)


def _uid(pod: _VictimPod) -> str:
    return pod.uid or pod.uid_small or (pod.metadata.uid if pod.metadata is not None else None) or ""
