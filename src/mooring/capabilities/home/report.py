"""Where every member belongs and where it is, for people: what `mooring home status` prints."""

from collections.abc import Iterator
from typing import Any

from mooring.capabilities.home.members import (
    LABEL,
    MemberSet,
    member_set_of,
    members_of,
    members_of_cluster,
    members_of_set,
)
from mooring.capabilities.home.memory import Place, Places, home_of, last_home, read_places, recorded
from mooring.capabilities.home.policy import HomeMode, HomePolicy
from mooring.capabilities.home.reserve import UNKNOWN, free_command, has_reservation_taint, reservation_on
from mooring.core.model.cluster import Key, Pod
from mooring.core.model.decision import Line
from mooring.core.model.marks import RESERVED_TAINT
from mooring.core.model.tidb import TidbCluster
from mooring.core.model.times import time_of_day
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


# ── Explain ─────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# What `why` says about a member's home and about a reservation, and what to type to change it.


def explain(subject: str, world: WorldRead, policy: HomePolicy) -> Iterator[Line]:
    kind, _, rest = subject.partition("/")
    if kind == "node":
        yield from _of_node(rest, world)
        return
    namespace, _, name = rest.partition("/")
    pod = world.pod(Key(namespace, name)) if kind == "pod" else None
    member_set = member_set_of(pod.namespace, pod.labels, pod.owner, world, policy) if pod is not None else None
    if pod is not None and member_set is not None:
        yield from _of_member(pod, member_set, world)


def _of_member(pod: Pod, member_set: MemberSet, world: WorldRead) -> Iterator[Line]:
    home = home_of(member_set, pod.name) if pod.node else last_home(member_set, pod.name, world)
    must = "goes back there" if member_set.mode is HomeMode.REQUIRE else "prefers to go back there"
    if not home:
        left = recorded(member_set, pod.name)
        said = f"it was moved off {left}, and where it lands is its home" if left else "no home is written down yet"
        yield Line("why there", f"{said}; kube-scheduler chooses")
    elif not pod.node:
        yield Line("why there", f"its home is {home}, and it {must} when {home} can take it")
    elif pod.node == home:
        yield Line("why there", f"{home} is its home: recreated, it {must}")
    else:
        yield Line("why there", f"{home} could not take it; {pod.node} is its home as soon as that is written down")
    reservation = next((n for n in world.nodes_with_taint(RESERVED_TAINT) if _held_for(n.name, pod, world)), None)
    if reservation is not None:
        yield Line("now", f"{reservation.name} is reserved for it")
    keeper = member_set.keeper.resource if isinstance(member_set.keeper, TidbCluster) else "statefulset"
    yield Line(
        "to change", f"no home     kubectl -n {pod.namespace} label {keeper} {member_set.keeper.name} {LABEL}=false"
    )


def _held_for(node: str, pod: Pod, world: WorldRead) -> bool:
    found = world.node(node)
    mark = reservation_on(found) if found is not None else None
    return mark is not None and mark.pod == str(pod.key)


def _of_node(name: str, world: WorldRead) -> Iterator[Line]:
    node = world.node(name)
    mark = reservation_on(node) if node is not None else None
    if mark is None:
        if node is not None and has_reservation_taint(node):
            yield Line("now", UNKNOWN)
            yield Line("to change", f"give back   {free_command(name)}")
        return
    until = time_of_day(mark.deadline or mark.since)
    yield Line("now", f"kept free for {mark.pod} until {until}: other pods are not scheduled here")
    yield Line("to change", f"give back   {free_command(name)}")
