"""The extender's answers, extender/v1: full Nodes go back as the bytes that came."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mooring.capabilities.home.fullnodes import NodeFields
from mooring.capabilities.home.wire import ExtenderRequest, WireVictims

_Nodes = Sequence[msgspec.Raw | NodeFields]
_encode = msgspec.json.Encoder().encode
_NO_ERROR: Final = b',"FailedAndUnresolvableNodes":{},"Error":""}'


def write_unchanged(request: ExtenderRequest) -> bytes:
    """Every candidate as it came."""
    nodes = request.given_nodes
    if isinstance(nodes, msgspec.Raw):
        return b"".join((b'{"Nodes":', nodes, _after_nodes(request.given_names, {})))
    return _written(None if nodes is None else request.items, request.given_names, {})


def write_only(request: ExtenderRequest, names: list[str], only: str, sentence: str) -> bytes:
    """One candidate and no other; `names` are all of them, `sentence` says why not the rest."""
    failed = dict.fromkeys(names, sentence)
    del failed[only]
    return _written(_nodes_where(request, names, {only}.__contains__), _given(request, [only]), failed)


def write_without(request: ExtenderRequest, names: list[str], without: Mapping[str, str]) -> bytes:
    """Every candidate but those in `without`, which says why not."""
    kept = [name for name in names if name not in without]
    nodes = _nodes_where(request, names, lambda name: name not in without)
    return _written(nodes, _given(request, kept), without)


def _given(request: ExtenderRequest, names: list[str]) -> list[str] | None:
    return None if request.given_names is None else names


def _nodes_where(request: ExtenderRequest, names: list[str], keep: Callable[[str], bool]) -> _Nodes | None:
    if request.given_nodes is None:
        return None
    mine = names if request.given_names is None else request.node_names()
    # Names and Nodes that do not name the same: better all of them than none.
    return [raw for name, raw in zip(mine, request.items, strict=True) if keep(name)] or request.items


def _written(nodes: _Nodes | None, names: list[str] | None, failed: Mapping[str, str]) -> bytes:
    parts: list[Any] = [b'{"Nodes":null']
    if nodes is not None:
        parts = [b'{"Nodes":{"metadata":{},"items":[']
        for node in nodes:
            parts += node.pieces() if isinstance(node, NodeFields) else (node,)
            parts.append(b",")
        if nodes:
            parts.pop()
        parts.append(b"]}")
    parts.append(_after_nodes(names, failed))
    return b"".join(parts)


def _after_nodes(names: list[str] | None, failed: Mapping[str, str]) -> bytes:
    return b"".join((b',"NodeNames":', _encode(names), b',"FailedNodes":', _encode(failed), _NO_ERROR))


class _HostScore(msgspec.Struct, frozen=True, gc=False):
    host: str = msgspec.field(name="Host")
    score: int = msgspec.field(name="Score")


def write_scores(names: Sequence[str], score: Callable[[str], int]) -> bytes:
    """Written as they are made, a thousand at a time."""
    batches = (names[at : at + 1000] for at in range(0, len(names), 1000))
    return b"[%s]" % b",".join(_encode([_HostScore(n, score(n)) for n in batch])[1:-1] for batch in batches)


def write_victims(victims: Mapping[str, WireVictims]) -> bytes:
    return _encode(
        {
            "NodeNameToMetaVictims": {
                name: {"Pods": [{"UID": uid} for uid in v.uids], "NumPDBViolations": v.pdb_violations}
                for name, v in victims.items()
            }
        }
    )
