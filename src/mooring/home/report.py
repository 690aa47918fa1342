"""Where every member belongs and where it is, for people: what `mooring home status` prints."""

from typing import Any

from mooring.home.memory import home_of
from mooring.home.policy import HomePolicy
from mooring.home.roster import Roster, members_of, roster_of_cluster, roster_of_set
from mooring.home.seats import seat_on
from mooring.model.marks import SEAT
from mooring.world.read import WorldRead


def report(world: WorldRead, policy: HomePolicy, now: float) -> dict[str, Any]:
    """Walks all rosters: for a person who asks, not for events."""
    rosters = [roster_of_cluster(tc, world, policy) for tc in world.tidb_clusters()]
    rosters += [roster_of_set(w, policy) for w in world.workloads() if w.kind == "StatefulSet"]
    seats = [
        {"node": node.name, "pod": mark.pod, "since": mark.since, "until": mark.deadline}
        for node in sorted(world.nodes_with_taint(SEAT), key=lambda n: n.name)
        if (mark := seat_on(node)) is not None
    ]
    held = {seat["pod"]: seat["node"] for seat in seats}
    rows = [row for roster in rosters if roster is not None for row in _rows(roster, world, held)]
    return {"members": sorted(rows, key=lambda r: (r["namespace"], r["member"])), "seats": seats, "as_of": now}


def _rows(roster: Roster, world: WorldRead, held: dict[Any, Any]) -> list[dict[str, Any]]:
    pods = members_of(roster, world)
    rows = []
    for name in sorted({*pods, *_remembered(roster)}):
        pod, home = pods.get(name), home_of(roster, name)
        now = pod.node if pod is not None else ""
        namespace = roster.keeper.namespace
        rows.append(
            {
                "namespace": namespace,
                "member": name,
                "of": roster.key,
                "mode": roster.mode,
                "home": home,
                "now": now,
                "state": _state(home, now, there=pod is not None, leaving=pod is not None and pod.terminating),
                "holds_seat": roster.holds_seats,
                "seat": held.get(f"{namespace}/{name}", ""),
            }
        )
    return rows


def _remembered(roster: Roster) -> list[str]:
    names = getattr(roster.keeper, "tidb_members", ())
    return [name for name in names if roster.wants(name)]


def _state(home: str, now: str, *, there: bool, leaving: bool) -> str:
    """In a word: `home`, `away` (its new home is not written down yet), `leaving`, `pending` or `missing`."""
    if leaving:
        return "leaving"
    if not there:
        return "missing"
    if not now:
        return "pending"
    return "home" if now == home else "away"
