"""Writing down where members are, beside tidb-operator and without losing anything it wrote.

tidb-operator keeps `status.tidb.members[<pod>].node` itself; where it does, we only read. Where nothing keeps it (no
tidb-operator, or one that does not know the field) we write the node, by a merge patch that names only our sub-keys,
since the CRD has no status subresource and a whole-object update would lose what others wrote meanwhile (H3).

The node survives the pod's deletion, follows a forced move, and is forgotten when the member is scaled in.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from mooring.capabilities.home.bindings import moved_off
from mooring.capabilities.home.members import MemberSet
from mooring.capabilities.home.memory import Place, Places, read_places, recorded, write_places
from mooring.capabilities.home.policy import HomePolicy
from mooring.core.model.cluster import Pod
from mooring.core.model.instructions import Patch
from mooring.core.model.marks import HOME
from mooring.core.model.tidb import TidbCluster


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
    if isinstance(member_set.keeper, TidbCluster):
        members, again_at = _members(member_set, member_set.keeper, pods, policy, now)
        places = _marks_of_moves(member_set, pods, known)
    else:
        members, again_at = {}, None
        places = _places(member_set, pods, known)
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


def _places(member_set: MemberSet, pods: Mapping[str, Pod], known: Places) -> Places:
    places = {name: place for name, place in known.items() if name in pods or member_set.wants(name)}
    for name, pod in pods.items():
        if pod.node:
            places[name] = Place(left=pod.node) if moved_off(pod) else Place(node=pod.node)
    return places
