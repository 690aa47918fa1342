"""The cluster as it is: its members, the taints of its live Nodes, and which taints are wanted or tolerated.

Read leniently where the planner does not look: labels, annotations and options of the current file are replaced anyway.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.fleet.planner.document import ErrorCode, PlanError, invalid, is_ip, kind_of
from mooring.core.model.machine import MachineState

#: value and effect of `cke.cybozu.com/state`; None: not tainted.
StateTaint = tuple[str, str] | None


class Member(msgspec.Struct, frozen=True, gc=False):
    """One node of the current cluster."""

    address: str
    control_plane: bool
    state_taint: StateTaint = None
    serial: str = ""
    #: As written in cluster.yml; None when only the decision is known.
    node: Mapping[str, Any] | None = None
    #: Decided out, still here until its node is empty. The planner no longer counts it.
    leaving: bool = False


class Current(msgspec.Struct, frozen=True):
    members: tuple[Member, ...]
    document: Mapping[str, Any] | None = None


def parse_cluster(document: Any, where: str = "cluster") -> Current | PlanError:
    problems = list(_problems(document))
    if problems:
        return invalid(ErrorCode.INVALID_CLUSTER, where, problems)
    return Current(tuple(_member(n) for n in document["nodes"]), document)


def _member(node: dict[str, Any]) -> Member:
    annotations = node.get("annotations")
    serial = annotations.get(keys.SERIAL, "") if isinstance(annotations, dict) else ""
    return Member(node["address"], node.get("control_plane") is True, state_taint_of(node), str(serial), node)


def state_taint_of(node: Mapping[str, Any]) -> StateTaint:
    for taint in node.get("taints") or ():
        if taint.get("key") == keys.STATE_TAINT:
            return (taint.get("value") or "", taint.get("effect") or "")
    return None


def _problems(document: Any) -> Iterator[str]:
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        yield "must be a map with a list of nodes: the cluster.yml in use (leave it out for a first generation)"
        return
    seen: dict[str, int] = {}
    for index, node in enumerate(document["nodes"]):
        path = f"nodes[{index}]"
        if not isinstance(node, dict):
            yield f"{path}: must be a map, not {kind_of(node)}"
            continue
        address = node.get("address")
        if not isinstance(address, str) or not is_ip(address):
            yield f"{path}.address: {address!r} is not an IP address"
        elif address in seen:
            yield f"{path}.address: {address} is that of nodes[{seen[address]}] already"
        else:
            seen[address] = index
        if not isinstance(node.get("control_plane", False), bool | None):
            yield f"{path}.control_plane: must be true or false, not {node['control_plane']!r}"
        taints = node.get("taints")
        if taints is not None and not (isinstance(taints, list) and all(isinstance(t, dict) for t in taints)):
            yield f"{path}.taints: must be a list of taints"


def parse_node_taints(document: Any, where: str = "nodes") -> dict[str, tuple[str, ...]] | PlanError:
    """Name → taint keys, of a Kubernetes NodeList (`kubectl get nodes -o json`)."""
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        said = kind_of(document) if not isinstance(document, dict) else "a map without items"
        return invalid(ErrorCode.INVALID_NODES, where, [f"must be a NodeList (kubectl get nodes -o json), not {said}"])
    found: dict[str, tuple[str, ...]] = {}
    for index, item in enumerate(items):
        try:
            spec = item.get("spec") or {}
            found[str(item["metadata"]["name"])] = tuple(str(t["key"]) for t in spec.get("taints") or ())
        except (KeyError, TypeError, AttributeError):
            what = f"items[{index}]: must be a Node with metadata.name and spec.taints[].key"
            return invalid(ErrorCode.INVALID_NODES, where, [what])
    return found


# ── Taints ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_RETIRING: Final = MachineState.RETIRING
_RETIRED: Final = MachineState.RETIRED


def wanted_state_taint(state: MachineState) -> StateTaint:
    """Retiring and retired only. Rebooting (UPDATING, UNINITIALIZED) and broken machines carry none."""
    if state == _RETIRING:
        return ("retiring", "NoExecute")
    if state == _RETIRED:
        return ("retired", "NoExecute")
    return None


def intolerable(taint_keys: Iterable[str], tolerated: frozenset[str]) -> str:
    """The first key a control plane must not carry; "" when all are tolerated.

    Kubernetes' own come and go (`node.kubernetes.io/…`), and Mooring sets its own: replacing a control plane because of
    them would never end.
    """
    for key in taint_keys:
        if key.startswith((keys.KUBERNETES_TAINT_PREFIX, keys.OUR_PREFIX)):
            continue
        if key in {keys.STATE_TAINT, keys.MASTER_TAINT} or key in tolerated:
            continue
        return key
    return ""
