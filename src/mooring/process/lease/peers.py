"""Where the lease holder can be reached by the other replicas: its identity says so.

The holder's identity in the lease is `<host>-<token>_<address>:<port>`, whether Mix is on or not. Name and address are
one value, written by the compare-and-swap that wins the lease: there is no moment in which a follower knows a new
leader and an old leader's address.
"""

import socket
from urllib.parse import urlsplit

_ANY = frozenset({"0.0.0.0", "::", ""})


def identity_with(name: str, address: str) -> str:
    return f"{name}_{address}" if address else name


def address_of(identity: str) -> str:
    """`10.0.0.7:9443`, or "" when this holder could not tell its own address."""
    _, underscore, address = identity.rpartition("_")
    return address if underscore and ":" in address else ""


def advertised(listen_host: str, port: int, given: str, server_url: str) -> str:
    """The address others reach us at: as given (a pod's own), as listened on, or the way we reach the API server."""
    host = given or (listen_host if listen_host not in _ANY else _own_address(server_url))
    if not host:
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _own_address(server_url: str) -> str:
    """The address of the interface that leads to the API server. Nothing is sent."""
    target = urlsplit(server_url)
    try:
        family, kind, _, _, address = socket.getaddrinfo(target.hostname, target.port or 443, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return ""
