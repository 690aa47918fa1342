"""How subjects and targets are spelled, in one place: build them here, and take them apart here.

pod/<ns>/<name> · node/<name> · machine/<serial> · operator/<id> · rack/<name> · cluster/<ns>/<name> ·
workload/<ns>/<kind>/<name> · store/<ns>/<cluster>/<id> · region/<ns>/<cluster>/<id> · tikv/<ns>/<cluster> ·
share/<what>/<ns>
"""

from typing import TYPE_CHECKING, NamedTuple

from mooring.core.model.cluster import Key

if TYPE_CHECKING:
    from mooring.core.model.cluster import Workload


class Named(NamedTuple):
    """A subject taken apart; what its kind does not have is ""."""

    kind: str
    #: All behind the kind: "tidb/demo-tikv-0".
    rest: str
    namespace: str = ""
    name: str = ""

    @property
    def key(self) -> Key:
        """Of what lives in a namespace, or of a node."""
        return Key(self.namespace, self.name)


#: Kinds whose first part is a namespace.
SPACED = frozenset({"pod", "workload", "cluster", "store", "region", "tikv", "missing"})


def parse(subject: str) -> Named:
    kind, _, rest = subject.partition("/")
    namespace, _, within = rest.partition("/")
    if kind in SPACED and within:
        return Named(kind, rest, namespace, within.rpartition("/")[2])
    return Named(kind, rest, "", rest)


def kind_of(subject: str) -> str:
    return subject.partition("/")[0]


def key_of(text: str) -> Key:
    """Of "<namespace>/<name>", as payloads name pods and clusters."""
    namespace, _, name = text.partition("/")
    return Key(namespace, name)


def pod(key: Key | str) -> str:
    return f"pod/{key}"


def node(name: str) -> str:
    return f"node/{name}"


def machine(serial: str) -> str:
    return f"machine/{serial}"


def operator(number: str) -> str:
    return f"operator/{number}"


def cluster(key: Key | str) -> str:
    return f"cluster/{key}"


def workload(found: "Workload") -> str:
    return f"workload/{found.namespace}/{found.kind}/{found.name}"


def store(of: Key | str, number: int | str) -> str:
    """Without a cluster (a replay knows only one) the bare id."""
    return f"store/{of}/{number}" if of else str(number)


def cluster_of_store(subject: str) -> str:
    """Of "store/<ns>/<cluster>/<id>" the part "<ns>/<cluster>"."""
    return subject.partition("/")[2].rpartition("/")[0]


def region(of: Key | str, number: int) -> str:
    return f"region/{of}/{number}" if of else f"region/{number}"


def tikv(of: Key | str) -> str:
    return f"tikv/{of}"


def share(what: str, namespace: str) -> str:
    """What one namespace may have of something that all of them use."""
    return f"share/{what}/{namespace}"
