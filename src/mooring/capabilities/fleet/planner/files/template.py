"""The cluster template: cluster.yml with one node per kind of machine instead of one per machine.

Exactly one control-plane node and at least one worker node. Roles and weights are labels. Everything but `nodes` is
carried over as it is, in its order, into the generated cluster.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.fleet.planner.files.clusterfile import carried_over_problems
from mooring.capabilities.fleet.planner.files.syntax import kind_of, string_map_problems, taint_problems
from mooring.capabilities.fleet.planner.problem import ErrorCode, PlanError, invalid

_DECIMAL: Final = re.compile(r"[+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
#: Fields of a node that the planner writes itself; whatever else a template node has is carried over.
_WRITTEN: Final = frozenset({"address", "hostname", "user", "control_plane", "annotations", "labels", "taints"})


class NodeTemplate(msgspec.Struct, frozen=True):
    user: str
    control_plane: bool
    #: "": machines of any role match.
    role: str = ""
    weight: float = 1.0
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    taints: tuple[Mapping[str, str], ...] = ()
    #: Other fields of the node, carried over.
    extra: Mapping[str, Any] = {}


class Template(msgspec.Struct, frozen=True):
    control_plane: NodeTemplate
    workers: tuple[NodeTemplate, ...]
    #: Taint keys a control plane may carry, beyond the design's own list.
    tolerations: frozenset[str]
    #: The whole document, for what is carried over.
    document: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def for_worker(self, role: str) -> NodeTemplate | None:
        """The template of a worker of this role; with a single one it is that one, whatever the role."""
        if len(self.workers) == 1:
            return self.workers[0]
        for template in self.workers:
            if template.role == role:
                return template
        return None


def parse_template(document: Any, where: str = "template") -> Template | PlanError:
    problems = list(_problems(document))
    if problems:
        return invalid(ErrorCode.INVALID_TEMPLATE, where, problems)
    nodes = [_node(n) for n in document["nodes"]]
    control_plane = next(n for n in nodes if n.control_plane)
    tolerated = set(document.get("control_plane_tolerations") or ())
    # What we put on a control plane ourselves must not drive it out again.
    tolerated.update(t["key"] for t in control_plane.taints)
    notes = tuple(
        f"{where}: nodes[{i}].hostname is ignored: every node is known by its address"
        for i, n in enumerate(document["nodes"])
        if n.get("hostname")
    )
    workers = tuple(n for n in nodes if not n.control_plane)
    return Template(control_plane, workers, frozenset(tolerated), document, notes)


def _node(node: dict[str, Any]) -> NodeTemplate:
    labels = node.get("labels") or {}
    return NodeTemplate(
        user=node["user"],
        control_plane=bool(node.get("control_plane")),
        role=labels.get(keys.ROLE, ""),
        weight=float(labels.get(keys.WEIGHT, "1.0")) if not node.get("control_plane") else 1.0,
        labels=labels,
        annotations=node.get("annotations") or {},
        taints=tuple(node.get("taints") or ()),
        extra={k: v for k, v in node.items() if k not in _WRITTEN},
    )


def _problems(document: Any) -> Iterator[str]:
    if not isinstance(document, dict):
        yield f"must be a map in the form of cluster.yml, not {kind_of(document)}"
        return
    yield from carried_over_problems(document)
    nodes = document.get("nodes")
    if not isinstance(nodes, list):
        yield "nodes: must be a list with one control-plane node and at least one worker node"
        return
    good = [n for n in nodes if isinstance(n, dict)]
    for index, node in enumerate(nodes):
        if isinstance(node, dict):
            yield from _node_problems(node, f"nodes[{index}]")
        else:
            yield f"nodes[{index}]: must be a map, not {kind_of(node)}"
    control_planes = sum(1 for n in good if n.get("control_plane") is True)
    if control_planes != 1:
        yield f"nodes: exactly one must have control_plane: true, not {control_planes}"
    workers = [(i, n) for i, n in enumerate(nodes) if isinstance(n, dict) and n.get("control_plane") is not True]
    if not workers:
        yield "nodes: at least one must not have control_plane: true (the workers' template)"
    if len(workers) > 1:
        yield from _role_problems(workers)


def _role_problems(workers: list[tuple[int, dict[str, Any]]]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for index, node in workers:
        labels = node.get("labels")
        role = labels.get(keys.ROLE) if isinstance(labels, dict) else None
        if not role:
            yield f"nodes[{index}].labels: {keys.ROLE} is missing; with several worker nodes each needs its role"
        elif not isinstance(role, str):
            continue  # told as a label that is no text
        elif role in seen:
            yield f"nodes[{index}].labels[{keys.ROLE!r}]: role {role!r} is that of nodes[{seen[role]}] already"
        else:
            seen[role] = index


def _node_problems(node: dict[str, Any], path: str) -> Iterator[str]:
    if node.get("address"):
        yield f"{path}.address: must be empty in a template: machines bring their own"
    if not isinstance(node.get("user"), str) or not node["user"]:
        yield f"{path}.user: is missing; the name CKE logs in with"
    if not isinstance(node.get("control_plane", False), bool):
        yield f"{path}.control_plane: must be true or false, not {node['control_plane']!r}"
    yield from string_map_problems(node.get("labels"), f"{path}.labels", labels=True)
    yield from string_map_problems(node.get("annotations"), f"{path}.annotations", labels=False)
    yield from taint_problems(node.get("taints"), f"{path}.taints")
    for index, taint in enumerate(node.get("taints") or () if isinstance(node.get("taints"), list) else ()):
        if isinstance(taint, dict) and taint.get("key") == keys.STATE_TAINT:
            yield f"{path}.taints[{index}]: {keys.STATE_TAINT} follows the machine's state; leave it out"
    labels = node.get("labels")
    if isinstance(labels, dict) and keys.WEIGHT in labels and node.get("control_plane") is not True:
        weight = labels[keys.WEIGHT]
        if not isinstance(weight, str) or not _DECIMAL.match(weight) or not 0 < float(weight) < math.inf:
            yield f'{path}.labels[{keys.WEIGHT!r}]: must be a number above 0 in quotes, such as "3.0", not {weight!r}'
