"""TidbCluster, PD and TiKV as placement reads them."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Final

import msgspec

from mooring.core.model.cluster import NO_LABELS, Key, Namespaced, Owner, Pod
from mooring.core.model.kinds import Kind
from mooring.core.model.placement import Placement

#: Whole numbers that others write have 64 bits, as recordings keep them.
LARGEST_NUMBER: Final = 2**63 - 1
Number = Annotated[int, msgspec.Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]

#: Labels of a member: its TidbCluster, what it is ("tikv", "pd" …), and who keeps it ("tidb-operator").
INSTANCE: Final = "app.kubernetes.io/instance"
COMPONENT: Final = "app.kubernetes.io/component"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"

#: The same of tidb-operator v2, whose pods are owned by instances of these kinds and named after them. Its PD members
#: are named by the instance.
V2_CLUSTER: Final = "pingcap.com/cluster"
V2_INSTANCE: Final = "pingcap.com/instance"
_V2_GROUP: Final = "core.pingcap.com/"
_V2_INSTANCES: Final = {kind: kind.lower() for kind in ("PD", "TiKV", "TiDB", "TiFlash", "TiCDC", "TiProxy")}

#: A spec that wants more is taken for a mistake.
MOST_MEMBERS: Final = 10_000

#: PD's schedulers are paused by us for a minute at most; a longer pause was set by another client.
OUR_LONGEST_PAUSE_S: Final = 60

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class EvictLeaderEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry of a TidbCluster's eviction status: the design's `evictLeaderStatus`, tidb-operator's `evictLeader`."""

    value: str
    pod_create_time: str = ""
    begin_time: str = ""


def v2_component(owner: Owner | None) -> str | None:
    """What an instance of tidb-operator v2 is (`tikv`, `pd`, …); None: the owner is none."""
    if owner is None or not owner.api_version.startswith(_V2_GROUP):
        return None
    return _V2_INSTANCES.get(owner.kind)


def pd_member_name(pod: Pod) -> str:
    """As PD knows it: by its pod's name or, with tidb-operator v2, its instance's."""
    return pod.labels.get(V2_INSTANCE, pod.name) if v2_component(pod.owner) == "pd" else pod.name


class TidbCluster(Namespaced, frozen=True, gc=False):
    """A TiDB cluster, of tidb-operator v1 (TidbCluster) or v2 (Cluster)."""

    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    tls: bool = False
    #: spec.clusterDomain: its stores' addresses end with it, so that several Kubernetes clusters can share a PD.
    cluster_domain: str = ""
    #: spec.cluster: the TidbCluster whose PD this one uses; None: its own.
    pd_of: Key | None = None
    #: spec.pdAddresses: PD members outside this TidbCluster.
    pd_addresses: tuple[str, ...] = ()
    #: status.clusterID: the id of its PD, as tidb-operator saw it; 0: not known.
    pd_id: int = 0
    #: spec.<component>.replicas; None when the component is absent.
    tidb_replicas: int | None = None
    tikv_replicas: int | None = None
    pd_replicas: int | None = None
    #: status.<component>.phase: Normal, Upgrade, Scale, Suspend or "".
    tidb_phase: str = ""
    tikv_phase: str = ""
    pd_phase: str = ""
    #: status.tidb.members[pod].node, only members that have one.
    tidb_member_nodes: Mapping[str, str] = _NONE
    #: status.tidb.members: every member named there.
    tidb_members: tuple[str, ...] = ()
    #: status.tikv.stores: pod name → store id.
    tikv_store_ids: Mapping[str, int] = MappingProxyType({})
    #: status.tikv.evictLeaderStatus (the design's key; ours to write).
    evict_leader_status: Mapping[str, EvictLeaderEntry] = MappingProxyType({})
    #: status.tikv.evictLeader (tidb-operator's key; read, never written).
    operator_evict_leader: Mapping[str, EvictLeaderEntry] = MappingProxyType({})
    created_at: float = 0.0
    deletion_at: float | None = None
    #: Of tidb-operator v2: members have no ordinals, and leaders leave a store after its pod was deleted, by the
    #: operator, which ends every eviction that it did not begin.
    v2: bool = False
    #: status.pd: where v2 has its PD.
    pd_url: str = ""
    #: v2 does not look after it (paused or suspended): nobody would take the leaders off or create a pod again.
    unattended: str = ""
    #: v2 has members to bring up to date.
    updating: bool = False

    @property
    def kind(self) -> Kind:
        return Kind.TIDB_V2 if self.v2 else Kind.TIDB_CLUSTER

    @property
    def resource(self) -> str:
        """As kubectl takes it."""
        return "clusters.core.pingcap.com" if self.v2 else "tc"

    def wanted(self, component: str) -> int | None:
        return {"tidb": self.tidb_replicas, "tikv": self.tikv_replicas, "pd": self.pd_replicas}[component]

    def may_have(self, pod_name: str, component: str) -> bool:
        """Whether a member could have this name: `<cluster>-tikv-<ordinal>`, of v2 `<group>-tikv-<suffix>`."""
        group, _, suffix = pod_name.rpartition(f"-{component}-")
        if self.v2:
            return bool(group) and suffix.isascii() and suffix.isalnum()
        return group == self.name and suffix.isascii() and suffix.isdigit() and len(suffix) <= 10

    @property
    def outlived_by_pd(self) -> bool:
        """Its PD is another TidbCluster's, or somebody else's: what is begun there does not end with this cluster."""
        return self.pd_of is not None or bool(self.pd_addresses)

    def ordinals(self, component: str) -> tuple[int, ...] | None:
        """The members that the spec wants, or None where it does not say how many.

        With tidb-operator's advanced StatefulSet they need not be the first ones: the annotation
        `<component>.tidb.pingcap.com/delete-slots` names those that are left out.
        """
        wanted = self.wanted(component)
        if self.v2 or wanted is None or wanted > MOST_MEMBERS:
            return None
        slots = _left_out(self.annotations.get(f"{component}.tidb.pingcap.com/delete-slots", ""))
        # Each slot left out adds at most one ordinal: the first `wanted` that remain are the members.
        return tuple(i for i in range(wanted + len(slots)) if i not in slots)[:wanted]


_slots = msgspec.json.Decoder(frozenset[int])


def _left_out(text: str) -> frozenset[int]:
    """What cannot be read leaves no member out."""
    try:
        return frozenset(i for i in _slots.decode(text) if i >= 0) if text else frozenset()
    except (msgspec.DecodeError, RecursionError):
        return frozenset()


class Store(msgspec.Struct, frozen=True, gc=False):
    """A TiKV store as PD reports it."""

    id: int
    address: str
    #: Up, Disconnected, Down, Offline, Tombstone.
    state: str = "Up"
    leader_count: int = 0
    region_count: int = 0
    leader_size_mib: int = 0
    region_size_mib: int = 0
    capacity_bytes: int = 0
    available_bytes: int = 0
    leader_weight: float = 1.0
    region_weight: float = 1.0
    last_heartbeat_at: float | None = None
    started_at: float | None = None
    labels: Mapping[str, str] = NO_LABELS

    @property
    def pod_name(self) -> str:
        """The pod a store belongs to: the first label of its address."""
        return self.address.split(":", 1)[0].split(".", 1)[0]

    @property
    def namespace(self) -> str:
        """Where that pod lives, when the address says so: `<pod>.<service>.<namespace>.svc…`, of tidb-operator v2 also
        `<pod>.<group>-tikv-peer.<namespace>`; else ""."""
        return self.pod_and_namespace[1]

    @property
    def pod_and_namespace(self) -> tuple[str, str]:
        labels = self.address.split(":", 1)[0].split(".", 4)
        told = labels[3] == "svc" if len(labels) > 3 else len(labels) == 3 and labels[1].endswith("-peer")
        return labels[0], labels[2] if told else ""

    @property
    def domain(self) -> str:
        """The cluster domain in its address, `cluster.local` in `<pod>.<service>.<namespace>.svc.cluster.local`; ""."""
        return self.address.split(":", 1)[0].partition(".svc.")[2].removesuffix(".")

    @property
    def leads(self) -> bool:
        """Can it have leaders at all? TiFlash stores are learners only."""
        return not self.labels.get("engine", "").startswith("tiflash")


class Peer(msgspec.Struct, frozen=True, gc=False):
    id: int
    store_id: int
    #: Voter, Learner, IncomingVoter, DemotingVoter; Witness: a voter without data.
    role: str = "Voter"


class Region(msgspec.Struct, frozen=True, gc=False):
    id: int
    start_key: str = ""
    end_key: str = ""
    conf_ver: int = 0
    version: int = 0
    peers: tuple[Peer, ...] = ()
    leader_store: int = 0
    down_peers: tuple[int, ...] = ()
    pending_peers: tuple[int, ...] = ()
    size_mib: int = 0
    keys: int = 0
    written_bytes: int = 0
    read_bytes: int = 0


#: Roles that vote in the old and in the new configuration of a region: outside a change of members they are the same.
_VOTES: Final = (frozenset({"Voter", "Witness", "IncomingVoter"}), frozenset({"Voter", "Witness", "DemotingVoter"}))


def loses_quorum(region: Region, store_id: int) -> bool:
    """Without this store too few of the region's voters would be left, of those that are well now."""
    unwell = {*region.down_peers, *region.pending_peers}
    for roles in _VOTES:
        voters = [p for p in region.peers if p.role in roles]
        left = [p for p in voters if p.store_id != store_id and p.id not in unwell]
        if any(p.store_id == store_id for p in voters) and len(left) < len(voters) // 2 + 1:
            return True
    return False


class PdOperator(msgspec.Struct, frozen=True, gc=False):
    """An operator that PD lists: running, or recently ended."""

    region_id: int
    desc: str
    brief: str = ""
    #: RUNNING, SUCCESS, TIMEOUT, CANCEL, REPLACE.
    status: str = "RUNNING"
    #: Steps as PD prints them.
    steps: tuple[str, ...] = ()


class PdMember(msgspec.Struct, frozen=True, gc=False):
    name: str
    member_id: int
    client_urls: tuple[str, ...] = ()
    healthy: bool | None = None


class PdPause(msgspec.Struct, frozen=True, gc=False):
    """A paused scheduler of PD."""

    name: str
    #: How long the pause was asked for as a whole, and how much of it was left when PD was looked at.
    length_s: float
    left_s: float


#: The kind of maintenance that a restart is, in PD's words.
PD_RESTART: Final = "tikv_restart"


class PdLock(msgspec.Struct, frozen=True, gc=False):
    """PD's maintenance lock: one holder for the whole PD, kept until it is released; it does not expire."""

    type: str
    id: str
    since: float = 0.0
    description: str = ""

    def __str__(self) -> str:
        return f"{self.type}/{self.id}"


class PdView(msgspec.Struct, frozen=True, gc=False):
    """One look at a PD cluster: a few cheap list calls, made together, at most once per interval and cluster."""

    stores: tuple[Store, ...]
    #: Stores whose leaders PD evicts now. None: PD could not say (just restarted), so nothing follows from it.
    evicting: tuple[int, ...] | None
    region_count: int
    #: start_timestamp of the answering PD leader: changes when it restarts or fails over.
    start_timestamp: int
    leader: str = ""
    members: tuple[PdMember, ...] = ()
    operators: tuple[PdOperator, ...] = ()
    #: The names of PD's schedulers, and those that were paused before the operators above were listed.
    schedulers: tuple[str, ...] = ()
    pauses: tuple[PdPause, ...] = ()
    #: Where PD was told that replicas belong. None: it could not say.
    placement: Placement | None = None
    #: PD's cluster id: however many TidbClusters name this PD, it is one cluster. 0: PD did not say.
    cluster_id: int = 0
    #: Who holds its maintenance lock; None: nobody, or this PD has none (before 8.5.7).
    lock: PdLock | None = None
    lockable: bool = False
    #: Of the stores that were asked about: how many regions would be without a quorum if it went away now.
    at_risk: Mapping[int, int] = MappingProxyType({})

    @property
    def life(self) -> str:
        """Another one for each start and each fail-over of PD."""
        return f"{self.leader}@{self.start_timestamp}"

    def store_of(self, tc: TidbCluster, pod_name: str) -> Store | None:
        """The live store of this cluster's pod; None also where it cannot be told which one it is."""
        found = self.claimants(tc, pod_name)
        return found[0] if len(found) == 1 else None

    def claimants(self, tc: TidbCluster, pod_name: str) -> tuple[Store, ...]:
        """The stores that may be this pod's; several: it cannot be told, and nothing may be done to any of them.

        Another Kubernetes cluster on the same PD may use the same names. A store is this pod's by its whole address
        (namespace and cluster domain included), or because tidb-operator's own status says so; where the two differ,
        neither counts. Of stores under one address the latest is meant: PD lets an address be used again only once.
        """
        return _claimants([s for s in self.stores if s.pod_name == pod_name], tc, pod_name)

    def stores_by_pod(self, tc: TidbCluster) -> dict[str, Store]:
        """`store_of` of every pod at once, for those who ask about a whole cluster."""
        by_pod: dict[str, list[Store]] = {}
        for store in self.stores:
            by_pod.setdefault(store.pod_name, []).append(store)
        found = {pod: _claimants(stores, tc, pod) for pod, stores in by_pod.items()}
        return {pod: claimants[0] for pod, claimants in found.items() if len(claimants) == 1}


def _claimants(stores: Iterable[Store], tc: TidbCluster, pod_name: str) -> tuple[Store, ...]:
    found = [s for s in stores if s.namespace in {tc.namespace, ""} and s.state != "Tombstone"]
    here = [s for s in found if s.domain == tc.cluster_domain]
    named = [s for s in found if s.id == tc.tikv_store_ids.get(pod_name)]
    if named and (not here or len({s.address for s in here}) > 1):
        here = named
    elif named and here and named[0].address != here[0].address:
        here = [*here, *named]
    if len({s.address for s in here}) > 1:
        return tuple(here)
    return (max(here, key=lambda s: s.id),) if here else ()
