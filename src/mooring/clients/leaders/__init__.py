"""Drivers of systems with leaders. A driver is one module and one line here.

A driver is made of `Ask` (how a request reaches a member) and the members' addresses by pod; the sandbox's stand-ins
answer the same requests, so one driver runs in both.
"""

from collections.abc import Callable, Mapping
from typing import Final

from mooring.clients.leaders.ask import Ask
from mooring.clients.leaders.etcd import Etcd
from mooring.clients.leaders.hook import Hook
from mooring.clients.leaders.patroni import Patroni
from mooring.clients.ports import LeaderDriver

Addresses = Mapping[str, str]
#: By the name in `mooring.dev/leaders` (`core.model.leaders.DRIVERS`).
DRIVERS: Final[Mapping[str, Callable[[Ask, Addresses], LeaderDriver]]] = {
    "etcd": Etcd,
    "patroni": Patroni,
    "hook": Hook,
}
#: Where members answer when no annotation says so; a hook has no default.
PORTS: Final[Mapping[str, int]] = {"etcd": 2379, "patroni": 8008}
