"""What reaches the world from Kubernetes: three small events. Losing one costs time, never truth."""

import msgspec

from mooring.model.cluster import Claim, ConfigMap, Key, Node, Pdb, Pod, ReplicaSet, Volume, Workload
from mooring.model.kinds import Kind
from mooring.model.tidb import TidbCluster

#: Everything the world keeps of Kubernetes.
Object = Pod | Node | Workload | ReplicaSet | Pdb | Volume | Claim | ConfigMap | TidbCluster


class Seen(msgspec.Struct, frozen=True, gc=False):
    """An object was added or changed."""

    kind: Kind
    object: Object


class Gone(msgspec.Struct, frozen=True, gc=False):
    """An object is no longer there. `uid` guards against a namesake that was created meanwhile ("" = whichever)."""

    kind: Kind
    key: Key
    uid: str = ""


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
