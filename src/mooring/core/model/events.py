"""What reaches the world: three small events from Kubernetes, looks at PD and at the machine registry.

A lost event delays a decision and never makes it wrong.
"""

import msgspec

from mooring.core.model.cluster import (
    Claim,
    ConfigMap,
    Key,
    Node,
    NodeClaim,
    Pdb,
    Pod,
    PodEviction,
    ReplicaSet,
    Volume,
    Workload,
)
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LeaderView
from mooring.core.model.machine import Machine
from mooring.core.model.operator import Operator
from mooring.core.model.tidb import PdView, Region, TidbCluster

#: Everything the world keeps of Kubernetes.
Object = Pod | Node | NodeClaim | Workload | ReplicaSet | Pdb | Volume | Claim | ConfigMap | TidbCluster | PodEviction


class Seen(msgspec.Struct, frozen=True, gc=False):
    """An object was added or changed."""

    kind: Kind
    object: Object


class Gone(msgspec.Struct, frozen=True, gc=False):
    """An object is no longer there. By its uid: a namesake may have been created meanwhile."""

    kind: Kind
    key: Key
    uid: str


class Listed(msgspec.Struct, frozen=True, gc=False):
    """The whole truth about one kind: what is missing here is gone."""

    kind: Kind
    objects: tuple[Object, ...]


KubeEvent = Seen | Gone | Listed


class Change(msgspec.Struct, frozen=True, gc=False):
    """What an event did to the world. `old` None: new; `new` None: gone."""

    kind: Kind
    key: Key
    old: Object | None
    new: Object | None


class PdSeen(msgspec.Struct, frozen=True, gc=False):
    cluster: Key
    view: PdView
    #: When the look began: what was written later is not in it.
    at: float


class PdLost(msgspec.Struct, frozen=True, gc=False):
    """PD could not be read; the last view stays, with its age."""

    cluster: Key
    detail: str
    at: float
    #: TLS fails, and this is what a person must do about it.
    tls_remedy: str = ""


class LeadersSeen(msgspec.Struct, frozen=True, gc=False):
    """A look at a system with leaders; `view` None: it could not be read, and why."""

    #: Its StatefulSet.
    workload: Key
    view: LeaderView | None
    #: When the look began.
    at: float
    lost: str = ""


class RegionsSeen(msgspec.Struct, frozen=True, gc=False):
    """Regions as PD knows them: those asked for, or (`asked` empty) all of a range of keys; what is missing is gone."""

    cluster: Key
    regions: tuple[Region, ...]
    #: When the look began.
    at: float
    asked: tuple[int, ...] = ()
    #: The range: from here, and up to there ("": the end).
    start_key: str = ""
    end_key: str = ""


class MachinesSeen(msgspec.Struct, frozen=True, gc=False):
    machines: tuple[Machine, ...]
    at: float


class MachinesLost(msgspec.Struct, frozen=True, gc=False):
    detail: str
    at: float


class EvictionAsked(msgspec.Struct, frozen=True, gc=False):
    """Somebody asked the eviction API for a pod that is guarded. Asked again and again until it may go: the last time
    says that it is still wanted."""

    key: Key
    uid: str
    #: The user, as the API server knows it.
    by: str
    at: float


class OperatorChanged(msgspec.Struct, frozen=True, gc=False):
    """One of our own operators has ended: the capability that proposed it evaluates again."""

    operator: Operator


#: What may make a capability evaluate again.
Trigger = (
    Change | PdSeen | PdLost | LeadersSeen | RegionsSeen | MachinesSeen | MachinesLost | EvictionAsked | OperatorChanged
)
