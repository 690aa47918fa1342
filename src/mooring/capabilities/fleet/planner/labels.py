"""A machine as a node of cluster.yml: labels, annotations and taints of the design's tables."""

from collections.abc import Iterable, Mapping
from typing import Any

from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.fleet.planner.current import StateTaint
from mooring.capabilities.fleet.planner.template import NodeTemplate, Template
from mooring.core.model.machine import Machine, MachineState
from mooring.core.model.times import rfc3339


class _Prefixed(dict[str, str]):
    """Label name → key under the prefix of machines' labels, made once."""

    def __missing__(self, name: str) -> str:
        made = self[name] = keys.MACHINE_LABEL_PREFIX + name
        return made


class Renderer:
    """Writes nodes from one template. What all machines of one rack and role share is made once."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._prefixed = _Prefixed()
        self._shared: dict[tuple[bool, int, str], tuple[NodeTemplate, dict[str, str]]] = {}
        #: By kind and by the machine's own labels, which many machines have in common (and are held here).
        self._merged: dict[tuple[tuple[bool, int, str], int], tuple[Mapping[str, str], dict[str, str]]] = {}

    def node(self, machine: Machine, *, control_plane: bool, state_taint: StateTaint) -> dict[str, Any]:
        """`state_taint` is said apart: what is stored may lag behind the machine's state until its node is empty."""
        kind = (control_plane, machine.rack, machine.role)
        found = self._shared.get(kind)
        if found is None:
            found = self._shared[kind] = _shared(self._template, *kind)
        template, shared = found
        own = machine.labels
        known = self._merged.get((kind, id(own)))
        if known is None:
            prefixed = self._prefixed
            known = self._merged[kind, id(own)] = (own, {**{prefixed[n]: v for n, v in own.items()}, **shared})
        return _node(machine, template, known[1].copy(), control_plane, state_taint)

    def vanished(self, address: str, *, control_plane: bool, kept: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """A node whose machine is not listed any more and whose removal waits: as it was, or as far as is known."""
        if kept is not None:
            return kept
        template = self._template.control_plane if control_plane else self._template.workers[0]
        empty: dict[str, Any] = {"annotations": {}, "labels": {}, "taints": []}
        return {"address": address, "user": template.user, "control_plane": control_plane, **empty}


def render_node(
    template: Template, machine: Machine, *, control_plane: bool, state_taint: StateTaint
) -> dict[str, Any]:
    """One node alone, as `Renderer` writes it."""
    found, shared = _shared(template, control_plane, machine.rack, machine.role)
    labels = {**{keys.MACHINE_LABEL_PREFIX + n: v for n, v in machine.labels.items()}, **shared}
    return _node(machine, found, labels, control_plane, state_taint)


def _shared(template: Template, control_plane: bool, rack: int, role: str) -> tuple[NodeTemplate, dict[str, str]]:
    """What all machines of one rack and role share."""
    found = template.control_plane if control_plane else template.for_worker(role)
    assert found is not None, f"no template for role {role}: checked before"
    shared = {
        **found.labels,
        keys.RACK: str(rack),
        keys.ROLE: role,
        keys.NODE_ROLE_PREFIX + role: "true",
        keys.ZONE: f"rack{rack}",
        keys.BETA_ZONE: f"rack{rack}",
    }
    if control_plane:
        shared |= {keys.MASTER_ROLE: "true", keys.CONTROL_PLANE_ROLE: "true"}
    return found, shared


def _node(
    machine: Machine, template: NodeTemplate, labels: dict[str, str], control_plane: bool, state_taint: StateTaint
) -> dict[str, Any]:
    """`labels`: the machine's own, then the template's; the computed ones come last and win."""
    labels[keys.INDEX_IN_RACK] = str(machine.index_in_rack)
    annotations = {**template.annotations, keys.SERIAL: machine.serial}
    shown = zip(
        dates(machine), (keys.REGISTER_DATE, keys.RETIRE_DATE), (keys.REGISTER_MONTH, keys.RETIRE_MONTH), strict=True
    )
    for date, key, month in shown:
        if date:
            annotations[key], labels[month] = date, date[:7]
    node: dict[str, Any] = {
        "address": machine.address,
        "user": template.user,
        "control_plane": control_plane,
        "annotations": annotations,
        "labels": labels,
        "taints": _taints(template, state_taint),
    }
    if template.extra:
        node.update(template.extra)
    return node


def dates(machine: Machine) -> tuple[str, str]:
    """When it was registered, and when it retires; "": a list of machines need not say so."""
    return (
        machine.register_date or (rfc3339(machine.registered_at) if machine.registered_at else ""),
        machine.retire_date or (rfc3339(machine.retire_at) if machine.retire_at else ""),
    )


def machine_of(node: Mapping[str, Any]) -> Machine | None:
    """The machine that a node of cluster.yml was written from; None where it does not say enough."""
    labels, annotations = node.get("labels"), node.get("annotations")
    if not isinstance(labels, Mapping) or not isinstance(annotations, Mapping):
        return None
    rack, index = str(labels.get(keys.RACK, "")), str(labels.get(keys.INDEX_IN_RACK, "0"))
    if not (rack.isdecimal() and index.isdecimal() and len(rack) < 10 and len(index) < 10):
        return None
    own = {
        k.removeprefix(keys.MACHINE_LABEL_PREFIX): str(v)
        for k, v in labels.items()
        if k.startswith(keys.MACHINE_LABEL_PREFIX)
    }
    return Machine(
        str(annotations.get(keys.SERIAL, "")),
        str(node["address"]),
        MachineState.HEALTHY,
        int(rack),
        int(index),
        str(labels.get(keys.ROLE, "")),
        own,
        register_date=str(annotations.get(keys.REGISTER_DATE, "")),
        retire_date=str(annotations.get(keys.RETIRE_DATE, "")),
    )


def with_nodes(template: Template, nodes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A whole cluster.yml: the template's fields in their order, with the nodes in place of its own."""
    return {key: (list(nodes) if key == "nodes" else value) for key, value in template.document.items()}


def _taints(template: NodeTemplate, state_taint: StateTaint) -> list[dict[str, str]]:
    taints = [dict(t) for t in template.taints] if template.taints else []
    if state_taint is not None:
        taints.append({"key": keys.STATE_TAINT, "value": state_taint[0], "effect": state_taint[1]})
    return taints
