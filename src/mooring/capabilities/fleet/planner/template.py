"""What an administrator gives: the template (cluster.yml with one node per kind of machine) and the constraints.

Exactly one control-plane node and at least one worker node; roles and weights are labels. Everything but `nodes` is
carried over as it is, in its order, into the generated cluster, and checked before it reaches every node, by CKE's own
rules: a file accepted here is one CKE accepts. Fields that CKE does not know are kept: a later version may.
"""

import math
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.fleet.planner.document import (
    ErrorCode,
    PlanError,
    invalid,
    is_cidr,
    is_ip,
    is_key,
    kind_of,
    string_map_problems,
    taint_problems,
)

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


# ── Constraints: required, not preferred ────────────────────────────────────────────────────────────────────────────

CONTROL_PLANE_COUNT: Final = "control-plane-count"
MINIMUM_WORKERS: Final = "minimum-workers"
MAXIMUM_WORKERS: Final = "maximum-workers"
_OURS: Final = {CONTROL_PLANE_COUNT: 1, MINIMUM_WORKERS: 0, MAXIMUM_WORKERS: 0}
#: CKE keeps these in the same place; they steer its reboot and repair queues, and nothing here.
_CKE_ONLY: Final = frozenset(
    {
        "minimum-workers-rate",
        "maximum-unreachable-nodes-for-reboot",
        "maximum-repair-queue-entries",
        "wait-seconds-to-repair-rebooting",
    }
)


class Constraints(msgspec.Struct, frozen=True):
    control_plane_count: int = 1
    minimum_workers: int = 1
    #: 0: no maximum.
    maximum_workers: int = 0
    notes: tuple[str, ...] = ()


def parse_constraints(document: Any, where: str = "constraints") -> Constraints | PlanError:
    problems = list(_constraint_problems(document))
    if problems:
        return invalid(ErrorCode.INVALID_CONSTRAINTS, where, problems)
    document = document or {}
    notes = [f"{where}: {key} is CKE's and has no effect here" for key in document if key in _CKE_ONLY]
    count = document.get(CONTROL_PLANE_COUNT, 1)
    if count % 2 == 0:
        notes.append(
            f"{where}: {CONTROL_PLANE_COUNT} {count} survives no more losses than {count - 1}; etcd likes odd numbers"
        )
    return Constraints(count, document.get(MINIMUM_WORKERS, 1), document.get(MAXIMUM_WORKERS, 0), tuple(notes))


def _constraint_problems(document: Any) -> Iterator[str]:
    if document is None:
        return
    if not isinstance(document, dict):
        yield f"must be a map such as {{{CONTROL_PLANE_COUNT}: 3}}, not {kind_of(document)}"
        return
    for key, value in document.items():
        if key in _CKE_ONLY:
            continue
        if key not in _OURS:
            near = get_close_matches(str(key), _OURS, 1)
            yield f"{key}: no such constraint" + (f"; {near[0]} is meant?" if near else f"; known: {', '.join(_OURS)}")
        elif type(value) is not int or value < _OURS[key]:
            yield f"{key}: must be a whole number of at least {_OURS[key]}, not {value!r}"
    low, high = document.get(MINIMUM_WORKERS, 1), document.get(MAXIMUM_WORKERS, 0)
    if type(low) is int and type(high) is int and 0 < high < low:
        yield f"{MAXIMUM_WORKERS} {high} is below {MINIMUM_WORKERS} {low}; raise it, or 0 for no maximum"


# ── What is carried over ────────────────────────────────────────────────────────────────────────────────────────────

_COMPONENTS: Final = (
    "etcd",
    "etcd-rivers",
    "rivers",
    "kube-api",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
)
_CONFIG_KINDS: Final = {
    "kube-scheduler": ("kubescheduler.config.k8s.io/", "KubeSchedulerConfiguration"),
    "kube-proxy": ("kubeproxy.config.k8s.io/", "KubeProxyConfiguration"),
    "kubelet": ("kubelet.config.k8s.io/", "KubeletConfiguration"),
}
_PROXY_MODES: Final = ("userspace", "iptables", "ipvs", "")
_REBOOT_NUMBERS: Final = {
    "eviction_timeout_seconds": 1,
    "command_timeout_seconds": 0,
    "command_retries": 0,
    "command_interval": 0,
    "evict_retries": 0,
    "evict_interval": 0,
    "max_concurrent_reboots": 1,
}
_REPAIR_NUMBERS: Final = {
    "eviction_timeout_seconds": 1,
    "evict_retries": 0,
    "evict_interval": 0,
    "max_concurrent_repairs": 1,
}


def carried_over_problems(document: dict[str, Any]) -> Iterator[str]:
    """Everything but `nodes`."""
    name, subnet = document.get("name"), document.get("service_subnet")
    if not isinstance(name, str) or not name:
        yield "name: the cluster's name is missing; any non-empty text"
    if not is_cidr(subnet):
        yield f"service_subnet: {subnet!r} is not a CIDR such as 10.68.0.0/16"
    for index, key in enumerate(_list(document, "control_plane_tolerations")):
        if not isinstance(key, str) or not is_key(key):
            yield f"control_plane_tolerations[{index}]: {key!r} is not a taint key ([dns.prefix/]name)"
    for index, address in enumerate(_list(document, "dns_servers")):
        if not is_ip(address):
            yield f"dns_servers[{index}]: {address!r} is not an IP address"
    service = document.get("dns_service")
    if service and (not isinstance(service, str) or service.count("/") != 1 or not all(service.split("/"))):
        yield f"dns_service: {service!r} is not namespace/name"
    for field in ("control_plane_tolerations", "dns_servers"):
        if document.get(field) is not None and not isinstance(document[field], list):
            yield f"{field}: must be a list, not {kind_of(document[field])}"
    yield from _numbers(document.get("reboot"), "reboot", _REBOOT_NUMBERS)
    yield from _numbers(document.get("repair"), "repair", _REPAIR_NUMBERS)
    yield from _option_problems(document.get("options"))


def _list(document: dict[str, Any], field: str) -> list[Any]:
    value = document.get(field)
    return value if isinstance(value, list) else []


def _numbers(section: Any, name: str, at_least: dict[str, int]) -> Iterator[str]:
    if section is None:
        return
    if not isinstance(section, dict):
        yield f"{name}: must be a map, not {kind_of(section)}"
        return
    for field, low in at_least.items():
        value = section.get(field)
        if value is not None and (type(value) is not int or value < low):
            yield f"{name}.{field}: must be a whole number of at least {low}, not {value!r}"


def _option_problems(options: Any) -> Iterator[str]:
    if options is None:
        return
    if not isinstance(options, dict):
        yield f"options: must be a map, not {kind_of(options)}"
        return
    for component in _COMPONENTS:
        section = options.get(component)
        if section is None:
            continue
        path = f"options.{component}"
        if not isinstance(section, dict):
            yield f"{path}: must be a map, not {kind_of(section)}"
            continue
        for index, bind in enumerate(_list(section, "extra_binds")):
            for end in ("source", "destination"):
                where = bind.get(end) if isinstance(bind, dict) else None
                if not isinstance(where, str) or not where.startswith("/"):
                    yield f"{path}.extra_binds[{index}].{end}: must be an absolute path, not {where!r}"
        yield from _config_problems(section.get("config"), component, path)
    kubelet, api = options.get("kubelet"), options.get("kube-api")
    if isinstance(kubelet, dict) and kubelet.get("cri_endpoint", "set") in {"", None}:
        yield "options.kubelet.cri_endpoint: is empty; leave it out for /run/containerd/containerd.sock"
    if isinstance(api, dict) and api.get("audit_log_enabled") and not api.get("audit_log_policy"):
        yield "options.kube-api.audit_log_policy: is missing while audit_log_enabled is true"


def _config_problems(config: Any, component: str, path: str) -> Iterator[str]:
    wanted = _CONFIG_KINDS.get(component)
    if config is None or wanted is None:
        return
    if not isinstance(config, dict):
        yield f"{path}.config: must be a map, not {kind_of(config)}"
        return
    group, kind = wanted
    if not str(config.get("apiVersion", "")).startswith(group) or config.get("kind") != kind:
        yield f"{path}.config: must have apiVersion {group}… and kind {kind}"
    if component == "kube-proxy" and config.get("mode", "") not in _PROXY_MODES:
        yield f"{path}.config.mode: {config.get('mode')!r} is none of userspace, iptables, ipvs"
