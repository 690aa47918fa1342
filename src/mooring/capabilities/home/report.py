"""Where every member belongs and where it is, for people: what `mooring home status` prints."""

from typing import Any

from mooring.capabilities.home.members import MemberSet, members_of, members_of_cluster, members_of_set
from mooring.capabilities.home.memory import Place, Places, home_of, read_places
from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.reservation import UNKNOWN, free_command, reservation_on
from mooring.core.model.marks import RESERVED_TAINT
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.read import WorldRead


def report(world: WorldRead, policy: HomePolicy, now: float) -> dict[str, Any]:
    """Walks all sets of members: for a person who asks, not for events."""
    member_sets = [members_of_cluster(tc, world, policy) for tc in world.tidb_clusters()]
    member_sets += [members_of_set(w, policy) for w in world.workloads() if w.kind == "StatefulSet"]
    reservations = [
        {"node": node.name, "pod": mark.pod, "since": mark.since, "until": mark.deadline}
        for node in sorted(world.nodes_with_taint(RESERVED_TAINT), key=lambda n: n.name)
        if (mark := reservation_on(node)) is not None
    ]
    unknown = [
        {"node": node.name, "why": UNKNOWN, "remedy": free_command(node.name)}
        for node in sorted(world.nodes_with_taint(RESERVED_TAINT), key=lambda n: n.name)
        if reservation_on(node) is None
    ]
    held = {reservation["pod"]: reservation["node"] for reservation in reservations}
    rows = [row for member_set in member_sets if member_set is not None for row in _rows(member_set, world, held)]
    members = sorted(rows, key=lambda r: (r["namespace"], r["member"]))
    return {"members": members, "reservations": reservations, "unknown_reservations": unknown, "as_of": now}


def _rows(member_set: MemberSet, world: WorldRead, held: dict[Any, Any]) -> list[dict[str, Any]]:
    pods, places = members_of(member_set, world), read_places(member_set.keeper.annotations)
    rows = []
    for name in sorted({*pods, *_remembered(member_set, places)}):
        pod, home = pods.get(name), home_of(member_set, name)
        now = pod.node if pod is not None else ""
        namespace = member_set.keeper.namespace
        rows.append(
            {
                "namespace": namespace,
                "member": name,
                "of": member_set.key,
                "mode": member_set.mode,
                "home": home,
                #: One of our operators moved it off this node; it is not sent back.
                "left": places.get(name, Place()).left,
                "now": now,
                "state": _state(home, now, there=pod is not None, leaving=pod is not None and pod.terminating),
                "reserves_node": member_set.reserves_nodes,
                "reserved": held.get(f"{namespace}/{name}", ""),
            }
        )
    return rows


def _remembered(member_set: MemberSet, places: Places) -> list[str]:
    """Members that something is written down about, whether their pods are there or not."""
    names = member_set.keeper.tidb_members if isinstance(member_set.keeper, TidbCluster) else ()
    return [name for name in (*names, *places) if member_set.wants(name)]


def _state(home: str, now: str, *, there: bool, leaving: bool) -> str:
    """In a word: `home`, `away` (its new home is not written down yet), `leaving`, `pending` or `missing`."""
    if leaving:
        return "leaving"
    if not there:
        return "missing"
    if not now:
        return "pending"
    return "home" if now == home else "away"
