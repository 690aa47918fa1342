"""Who has a home: the TiDB members of every TidbCluster, and the pods of StatefulSets that opted in by label.

A member set is one such group, with the object that remembers for it. Everything here is a lookup by key, since it is
asked for every pod that a scheduler handles: a pod that belongs to none costs two dictionary reads.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from mooring.capabilities.home.policy import HomeMode, HomePolicy
from mooring.core.model.cluster import Key, Owner, Pod, Workload
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import COMPONENT, INSTANCE, V2_CLUSTER, TidbCluster, v2_component
from mooring.core.world.members import by_owner
from mooring.core.world.read import WorldRead

#: Label on a TidbCluster or StatefulSet: `true` or `require`, `prefer`, `false`.
LABEL: Final = "mooring.dev/home"
#: Label on the same objects: reserve the node of a member that is being recreated.
RESERVE_NODE: Final = "mooring.dev/reserve-node"
TIDB: Final = "tidb"
SET: Final = "set"
ALLOWED: Final = ("true", "require", "prefer", "false")
#: What RESERVE_NODE may say.
YES_OR_NO: Final = ("true", "false")
_MODES: Final = {"require": HomeMode.REQUIRE, "prefer": HomeMode.PREFER}


class MemberSet(msgspec.Struct, frozen=True, gc=False):
    """Members that go home together: `tidb/<ns>/<cluster>` or `set/<ns>/<StatefulSet>`."""

    #: The TidbCluster or StatefulSet that remembers.
    keeper: TidbCluster | Workload
    mode: HomeMode
    reserves_nodes: bool
    #: The StatefulSet behind it, when it is a plain one.
    set: Workload | None

    @property
    def is_tidb(self) -> bool:
        return isinstance(self.keeper, TidbCluster)

    @property
    def kind(self) -> Kind:
        return self.keeper.kind if isinstance(self.keeper, TidbCluster) else Kind.STATEFUL_SET

    @property
    def v2(self) -> TidbCluster | None:
        """The cluster of tidb-operator v2: its members have no ordinals, and it keeps no node of theirs."""
        return self.keeper if isinstance(self.keeper, TidbCluster) and self.keeper.v2 else None

    @property
    def key(self) -> str:
        return f"{TIDB if self.is_tidb else SET}/{self.keeper.key}"

    @property
    def prefix(self) -> str:
        """What a member's name begins with; the ordinal follows."""
        return f"{self.keeper.name}-tidb-" if self.is_tidb else f"{self.keeper.name}-"

    def ordinal_of(self, name: str) -> int | None:
        """None: not the name of a member."""
        ordinal = name.removeprefix(self.prefix)
        # Names come from annotations, too, which are untrusted input.
        told = ordinal != name and ordinal.isascii() and ordinal.isdigit() and len(ordinal) <= 10
        return int(ordinal) if told else None

    def is_member(self, name: str) -> bool:
        return self.v2.may_have(name, TIDB) if self.v2 is not None else self.ordinal_of(name) is not None

    def wants(self, name: str) -> bool:
        """Whether this member is to be there. Where their number is not stated, every member is."""
        if self.v2 is not None:
            return self.v2.deletion_at is None and self.is_member(name)
        ordinal = self.ordinal_of(name)
        if ordinal is None or self.keeper.deletion_at is not None:
            return False
        if isinstance(self.keeper, TidbCluster) and (self.set is None or self.set.deletion_at is not None):
            # An advanced StatefulSet, which we do not see, or one that is being recreated: the cluster says.
            ordinals = self.keeper.ordinals("tidb")
            return ordinals is None or ordinal in ordinals
        assert self.set is not None
        start = self.set.ordinals_start
        return self.set.deletion_at is None and start <= ordinal < start + self.set.replicas


def members_of_cluster(tc: TidbCluster, world: WorldRead, policy: HomePolicy) -> MemberSet | None:
    """The TiDB members of a cluster; None when its label says `false`."""
    said = tc.labels.get(LABEL, "true")
    if said == "false":
        return None
    sts = None if tc.v2 else world.workload(Kind.STATEFUL_SET, Key(tc.namespace, f"{tc.name}-tidb"))
    return MemberSet(tc, _MODES.get(said, policy.mode), tc.labels.get(RESERVE_NODE) == "true", sts)


def members_of_set(sts: Workload, policy: HomePolicy) -> MemberSet | None:
    """A StatefulSet that opted in. A label with an unknown value does not opt in."""
    said = sts.labels.get(LABEL)
    if said is None or said == "false" or said not in ALLOWED:
        return None
    return MemberSet(sts, _MODES.get(said, policy.mode), sts.labels.get(RESERVE_NODE) == "true", sts)


def member_set_by_key(key: str, world: WorldRead, policy: HomePolicy) -> MemberSet | None:
    kind, _, rest = key.partition("/")
    namespace, _, name = rest.partition("/")
    if kind == TIDB:
        tc = world.tidb_cluster(Key(namespace, name))
        return None if tc is None else members_of_cluster(tc, world, policy)
    sts = world.workload(Kind.STATEFUL_SET, Key(namespace, name))
    return None if sts is None else members_of_set(sts, policy)


def member_set_of(
    namespace: str, labels: Mapping[str, str], owner: Owner | None, world: WorldRead, policy: HomePolicy
) -> MemberSet | None:
    """The member set of a pod, seen in the world or only in a scheduler's request. None: not ours."""
    decided, member = by_owner(owner, world)
    if v2_component(owner) is not None:
        tc = world.tidb_cluster(Key(namespace, labels.get(V2_CLUSTER, "")))
        mine = v2_component(owner) == TIDB and tc is not None and tc.v2
        return members_of_cluster(tc, world, policy) if mine and tc is not None else None
    if not decided and labels.get(COMPONENT) == TIDB and INSTANCE in labels:
        member = (Key(namespace, labels[INSTANCE]), TIDB)
    if member is not None and member[1] == TIDB and member[0].namespace == namespace:
        tc = world.tidb_cluster(member[0])
        if tc is not None:
            return members_of_cluster(tc, world, policy)
    if owner is None or owner.kind != "StatefulSet":
        return None
    sts = world.workload(Kind.STATEFUL_SET, Key(namespace, owner.name))
    if sts is None or sts.uid != owner.uid:
        return None
    return members_of_set(sts, policy)


def members_of(member_set: MemberSet, world: WorldRead) -> dict[str, Pod]:
    """Its pods by name, leaving ones too."""
    keeper = member_set.keeper
    pods = world.tidb_pods(keeper.key, "tidb") if isinstance(keeper, TidbCluster) else world.pods_of(keeper)
    members = (pod for pod in pods if not pod.terminal and member_set.is_member(pod.name))
    return {pod.name: pod for pod in sorted(members, key=lambda pod: pod.name)}
