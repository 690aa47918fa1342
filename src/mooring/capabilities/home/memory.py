"""Where a member's home is: the records of its node, and who writes each.

TiDB members: `TidbCluster.status.tidb.members[<pod>].node`, the design's field, which tidb-operator writes itself.
Other StatefulSets, and clusters of tidb-operator v2: an annotation of ours on the StatefulSet or Cluster. The same
annotation, on any of them, remembers which node one of our own operators moved a member off (`left`): it is not sent
back there, and where it lands is its new home.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from mooring.capabilities.home.members import MemberSet
from mooring.capabilities.home.policy import HomePolicy
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.events import Change, Trigger
from mooring.core.model.instructions import Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HOME, leaving
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.read import WorldRead

# ── Bindings ────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# Where each pod of a StatefulSet was last seen bound, on every replica: what counts while it is not recorded.
#
# The record on the TidbCluster or StatefulSet is the leader's to write, a moment after the binding. A member that is
# recreated before that (at the start, in a fail-over, beside a tidb-operator that is slow) still goes home, since every
# replica saw where it was (H3). It is forgotten with the member: scaled in, moved off by one of our operators, or its
# StatefulSet gone.


def moved_off(pod: Pod) -> bool:
    """One of our operators sends this pod away (a hand-over restarts it in place and is none of these)."""
    mark = leaving(pod)
    return mark is not None and mark.source != "handoff"


class LastBindings:
    """An `Index` of the world. The last binding of a name wins, so it says more than the rows that are there now."""

    observes: frozenset[object] = frozenset({Kind.POD, Kind.STATEFUL_SET})

    def __init__(self) -> None:
        #: StatefulSet → pod's name → node
        self._nodes: dict[Key, dict[str, str]] = {}

    def kept(self) -> dict[str, object]:
        """What a checkpoint keeps."""
        return vars(self)

    def restore(self, kept: Mapping[str, Any]) -> None:
        vars(self).update(kept)

    def node_of(self, pod: Key, stateful_set: str) -> str:
        """Where the pod of this name was last seen; "" when it was not."""
        return self._nodes.get(Key(pod.namespace, stateful_set), {}).get(pod.name, "")

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        if not isinstance(trigger, Change):
            return
        row = trigger.new if trigger.new is not None else trigger.old
        if isinstance(row, Pod) and row.owner is not None and row.owner.kind == Kind.STATEFUL_SET:
            self._see(row, gone=trigger.new is None, world=world)
        elif isinstance(row, Workload) and trigger.key in self._nodes:
            for name in list(self._nodes[trigger.key]) if trigger.new is not None else ():
                self._forget_unwanted(Key(trigger.key.namespace, name), row, world)
            if trigger.new is None and world.workload(Kind.STATEFUL_SET, trigger.key) is None:
                del self._nodes[trigger.key]

    def advance(self) -> bool:
        return False

    def _see(self, pod: Pod, *, gone: bool, world: WorldRead) -> None:
        assert pod.owner is not None
        of = Key(pod.namespace, pod.owner.name)
        if pod.node and moved_off(pod):
            self._forget(of, pod.name)
        elif pod.node and not gone and not pod.terminal:
            self._nodes.setdefault(of, {})[pod.name] = pod.node
        if gone:
            part = world.workload(Kind.STATEFUL_SET, of)
            if part is None:
                self._forget(of, pod.name)
            else:
                self._forget_unwanted(pod.key, part, world)

    def _forget_unwanted(self, pod: Key, part: Workload, world: WorldRead) -> None:
        """It will not be created again, and it is not there any more."""
        ordinal = pod.name.rpartition("-")[2]
        wanted = ordinal.isdecimal() and 0 <= int(ordinal) - part.ordinals_start < part.replicas
        if not wanted and world.pod(pod) is None:
            self._forget(part.key, pod.name)

    def _forget(self, of: Key, name: str) -> None:
        names = self._nodes.get(of, {})
        names.pop(name, None)
        if not names:
            self._nodes.pop(of, None)


class Place(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    node: str = ""
    #: One of our operators moved it off this node.
    left: str = ""


Places = dict[str, Place]
_places = msgspec.json.Decoder(Places)


def read_places(annotations: Mapping[str, str]) -> Places:
    """An annotation that cannot be read remembers nothing, and is written again with the next change."""
    try:
        return _places.decode(annotations.get(HOME, "") or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}


def write_places(places: Mapping[str, Place]) -> str | None:
    """None removes the annotation."""
    return msgspec.json.encode(dict(sorted(places.items()))).decode() if places else None


def recorded(member_set: MemberSet, name: str, places: Places | None = None) -> str:
    """The node that is written down for a member, whether it may go back there or not; "" when there is none."""
    place = (read_places(member_set.keeper.annotations) if places is None else places).get(name, Place())
    if isinstance(member_set.keeper, TidbCluster):
        return member_set.keeper.tidb_member_nodes.get(name, "") or place.node
    return place.node


def home_of(member_set: MemberSet, name: str, places: Places | None = None) -> str:
    """Where a member belongs; "" while unknown, or after one of our operators moved it off."""
    places = read_places(member_set.keeper.annotations) if places is None else places
    node = recorded(member_set, name, places)
    return "" if node == places.get(name, Place()).left else node


def last_home(member_set: MemberSet, name: str, world: WorldRead) -> str:
    """Where a member that is to be scheduled belongs: what was seen last, recorded or not; "": unknown."""
    places = read_places(member_set.keeper.annotations)
    return seen_home(member_set, name, world, places) or home_of(member_set, name, places)


def seen_home(member_set: MemberSet, name: str, world: WorldRead, places: Places | None = None) -> str:
    """Where a member belongs by what this process saw itself; "" when it saw nothing, or one of our operators moved it
    off."""
    places = read_places(member_set.keeper.annotations) if places is None else places
    part = member_set.set.name if member_set.set is not None else member_set.prefix.removesuffix("-")
    seen = world.index(LastBindings).node_of(Key(member_set.keeper.namespace, name), part)
    return "" if seen == places.get(name, Place()).left else seen


# ── Tracking ────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# Writing down where members are, beside tidb-operator and without losing anything it wrote.
#
# tidb-operator keeps `status.tidb.members[<pod>].node` itself; where it does, we only read. Where nothing keeps it (no
# tidb-operator, or one that does not know the field) we write the node, by a merge patch that names only our sub-keys,
# since the CRD has no status subresource and a whole-object update would lose what others wrote meanwhile (H3).
#
# The node survives the pod's deletion, follows a forced move, and is forgotten when the member is scaled in.


class Record(msgspec.Struct, frozen=True, gc=False):
    """What is to be written; nothing when both are empty."""

    #: status.tidb.members: entry by entry, None forgets one.
    members: Mapping[str, Any]
    #: The whole annotation as it should be, or None when it is right already.
    places: Places | None
    #: When to look again for a node that tidb-operator is expected to write.
    again_at: float | None = None


def record(member_set: MemberSet, pods: Mapping[str, Pod], policy: HomePolicy, now: float) -> Record:
    known = read_places(member_set.keeper.annotations)
    if isinstance(member_set.keeper, TidbCluster) and member_set.v2 is None:
        members, again_at = _members(member_set, member_set.keeper, pods, policy, now)
        places = _marks_of_moves(member_set, pods, known)
    else:
        members, again_at = {}, None
        places = _seen_places(member_set, pods, known)
    return Record(members, None if places == known else places, again_at)


def patch_of(member_set: MemberSet, found: Record) -> Patch | None:
    """One write for both. No resourceVersion: it names nothing but our own keys."""
    body: dict[str, Any] = {}
    if found.places is not None:
        body["metadata"] = {"annotations": {HOME: write_places(found.places)}}
    if found.members:
        body["status"] = {"tidb": {"members": dict(found.members)}}
    if not body:
        return None
    keeper = member_set.keeper
    return Patch(kind=member_set.kind, key=keeper.key, uid=keeper.uid, patch=body, why="writes down where members are")


def _members(
    member_set: MemberSet, tc: TidbCluster, pods: Mapping[str, Pod], policy: HomePolicy, now: float
) -> tuple[dict[str, Any], float | None]:
    # tidb-operator always writes a phase; we never do.
    kept_by_operator = bool(tc.tidb_phase)
    entries: dict[str, Any] = {}
    again_at = None
    for name, pod in pods.items():
        if not pod.node or tc.tidb_member_nodes.get(name) == pod.node or not member_set.wants(name):
            continue
        due = pod.created_at + policy.settle_s
        if kept_by_operator and now < due:
            again_at = due if again_at is None else min(again_at, due)
        elif name in tc.tidb_members:
            entries[name] = {"node": pod.node}
        else:
            entries[name] = {"name": name, "health": pod.ready, "node": pod.node}
    if not kept_by_operator:
        entries.update({n: None for n in tc.tidb_member_nodes if n not in pods and not member_set.wants(n)})
    return entries, again_at


def _marks_of_moves(member_set: MemberSet, pods: Mapping[str, Pod], known: Places) -> Places:
    """A TidbCluster's annotation: only what its status cannot say, namely what a member was moved off."""
    places = {name: place for name, place in known.items() if name in pods or member_set.wants(name)}
    for name, pod in pods.items():
        if pod.node and moved_off(pod):
            places[name] = Place(left=pod.node)
        elif pod.node and name in places and recorded(member_set, name, places) == pod.node:
            del places[name]  # it has settled somewhere, and that is written down
    return places


def _seen_places(member_set: MemberSet, pods: Mapping[str, Pod], known: Places) -> Places:
    v2 = member_set.v2
    # The names of v2 tell no order: while all that are wanted are there, one without a pod was scaled in.
    full = v2 is not None and v2.tidb_replicas is not None and len(pods) >= v2.tidb_replicas
    places = {name: place for name, place in known.items() if name in pods or (member_set.wants(name) and not full)}
    for name, pod in pods.items():
        if pod.node:
            places[name] = Place(left=pod.node) if moved_off(pod) else Place(node=pod.node)
    return places
