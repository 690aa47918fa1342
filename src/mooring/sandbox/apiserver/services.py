"""What the API server allocates for a Service: a cluster address and, where asked for, ports on the nodes.

Lowest free first, so that the same scenario gives the same numbers (the real server draws them).
"""

from collections.abc import Iterable
from typing import Final

from mooring.clients.ports import Json

NODE_PORTS: Final = range(30000, 32768)
_NODE_PORT_TYPES: Final = frozenset({"NodePort", "LoadBalancer"})


def allocate(obj: Json, others: Iterable[Json], current: Json | None = None) -> Json:
    """The Service with its addresses and ports; what it had (`current`) it keeps."""
    spec = obj.get("spec") or {}
    had = (current or {}).get("spec") or {}
    if spec.get("type") == "ExternalName":
        return obj
    taken = [(other.get("spec") or {}) for other in others]
    address = spec.get("clusterIP") or had.get("clusterIP") or _free_address({s.get("clusterIP") for s in taken})
    ports = [{"protocol": "TCP", "targetPort": port.get("port"), **port} for port in spec.get("ports") or ()]
    filled = {**spec, "clusterIP": address, "clusterIPs": [address], "ports": ports}
    if spec.get("type") in _NODE_PORT_TYPES:
        used = {p.get("nodePort") for s in taken for p in s.get("ports") or ()}
        kept = {(p.get("name", ""), p.get("port")): p.get("nodePort") for p in had.get("ports") or ()}
        for port in ports:
            number = port.get("nodePort") or kept.get((port.get("name", ""), port.get("port")))
            number = number or next(n for n in NODE_PORTS if n not in used)
            used.add(number)
            port["nodePort"] = number
    return {**obj, "spec": filled}


def _free_address(taken: set[str | None]) -> str:
    """10.96.0.1 is the API server's own, as everywhere."""
    return next(ip for n in range(2, 65_000) if (ip := f"10.96.{n // 256}.{n % 256}") not in taken)
