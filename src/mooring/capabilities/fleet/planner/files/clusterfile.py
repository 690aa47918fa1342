"""The parts of cluster.yml that are carried over: never changed, but checked before they reach every node.

The rules are CKE's own, so that a file accepted here is one CKE accepts. Fields that CKE does not know are kept:
a later version may.
"""

from collections.abc import Iterator
from typing import Any, Final

from mooring.capabilities.fleet.planner.files.syntax import is_cidr, is_ip, is_key, kind_of

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
