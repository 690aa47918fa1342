"""A machine as a node of cluster.yml: labels, annotations and taints of the design's tables."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from mooring.fleet import keys
from mooring.fleet.current import StateTaint
from mooring.fleet.template import NodeTemplate, Template
from mooring.model.machine import Machine


def rfc3339(at: float) -> str:
    return datetime.fromtimestamp(int(at // 1), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Renderer:
    """Writes nodes from one template. Strings that repeat (racks, roles, label keys) are made once."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._prefixed: dict[str, str] = {}
        self._of_rack: dict[int, tuple[str, str]] = {}
        self._role_key: dict[str, str] = {}

    def node(self, machine: Machine, *, control_plane: bool, state_taint: StateTaint) -> dict[str, Any]:
        """`state_taint` is said apart: what is stored may lag behind the machine's state until its node is empty."""
        template = self._template.control_plane if control_plane else self._template.for_worker(machine.role)
        assert template is not None, f"no template for role {machine.role}: checked before"
        registered = machine.register_date or rfc3339(machine.registered_at)
        retires = machine.retire_date or rfc3339(machine.retire_at)
        node: dict[str, Any] = {
            "address": machine.address,
            "user": template.user,
            "control_plane": control_plane,
            "annotations": {
                **template.annotations,
                keys.SERIAL: machine.serial,
                keys.REGISTER_DATE: registered,
                keys.RETIRE_DATE: retires,
            },
            "labels": self._labels(machine, template, registered[:7], retires[:7]),
            "taints": _taints(template, state_taint),
        }
        if template.extra:
            node.update(template.extra)
        return node

    def vanished(self, address: str, *, control_plane: bool, kept: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """A node whose machine is not listed any more and whose removal waits: as it was, or as far as is known."""
        if kept is not None:
            return kept
        template = self._template.control_plane if control_plane else self._template.workers[0]
        empty: dict[str, Any] = {"annotations": {}, "labels": {}, "taints": []}
        return {"address": address, "user": template.user, "control_plane": control_plane, **empty}

    def _labels(self, machine: Machine, template: NodeTemplate, registered: str, retires: str) -> dict[str, str]:
        """The machine's own, then the template's, then the computed ones: the later wins."""
        rack, zone = self._of_rack.get(machine.rack) or self._rack(machine.rack)
        role = machine.role
        labels = {
            **self._sabakan(machine.labels),
            **template.labels,
            keys.RACK: rack,
            keys.INDEX_IN_RACK: str(machine.index_in_rack),
            keys.ROLE: role,
            self._role_key.get(role) or self._role(role): "true",
            keys.REGISTER_MONTH: registered,
            keys.RETIRE_MONTH: retires,
            keys.ZONE: zone,
            keys.BETA_ZONE: zone,
        }
        if template.control_plane:
            labels[keys.MASTER_ROLE] = "true"
            labels[keys.CONTROL_PLANE_ROLE] = "true"
        return labels

    def _sabakan(self, labels: Mapping[str, str]) -> dict[str, str]:
        prefixed = self._prefixed
        for name in labels:
            if name not in prefixed:
                prefixed[name] = keys.SABAKAN_PREFIX + name
        return {prefixed[name]: value for name, value in labels.items()}

    def _rack(self, rack: int) -> tuple[str, str]:
        made = self._of_rack[rack] = (str(rack), f"rack{rack}")
        return made

    def _role(self, role: str) -> str:
        made = self._role_key[role] = keys.NODE_ROLE_PREFIX + role
        return made


def with_nodes(template: Template, nodes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A whole cluster.yml: the template's fields in their order, with the nodes in place of its own."""
    return {key: (list(nodes) if key == "nodes" else value) for key, value in template.document.items()}


def _taints(template: NodeTemplate, state_taint: StateTaint) -> list[dict[str, str]]:
    taints = [dict(t) for t in template.taints] if template.taints else []
    if state_taint is not None:
        taints.append({"key": keys.STATE_TAINT, "value": state_taint[0], "effect": state_taint[1]})
    return taints
