"""The events: a few words on the command line, checked against the snapshot before anything is played.

    rack-lost 2        node-lost n7        zone-lost a        spot-gone        retire M004 M005        restart tidb/demo

Several are joined by `then`; `@90s` behind an event's name says when it begins, counted from the first moment:
`rack-lost 2 then spot-gone@90s`. What the snapshot does not have is an error that lists what it has.
"""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from mooring.capabilities.fleet.live import settings
from mooring.clients.ports import Json
from mooring.core.model.capacity import CapacityRules, NodeClass
from mooring.core.model.cluster import Key
from mooring.core.model.exits import UserError
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.spelling import did_you_mean
from mooring.core.model.times import clock
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import labels_of
from mooring_lab.rehearse.snapshot.schema import Snapshot
from mooring_lab.rehearse.snapshot.stores import tikv_pods

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# An event on a snapshot: its name, what it affects, and when. Pure.


NOTICE_S: Final = 120.0
#: How many names an error lists.
SHOWN: Final = 12


class BadEventError(UserError, ValueError):
    """What is wrong with it, and what would be right."""


class Name(StrEnum):
    RACK_LOST = "rack-lost"
    NODE_LOST = "node-lost"
    SPOT_GONE = "spot-gone"
    RETIRE = "retire"
    RESTART = "restart"
    ZONE_LOST = "zone-lost"
    ZONE_CUT_OFF = "zone-cut-off"
    ROLLING_UPDATE = "rolling-update"
    DRAIN = "drain"
    #: `mooring drain` and `mooring restart`: what --dry-run plays.
    EMPTY = "empty"
    RESTART_PODS = "restart-pods"
    PD_AWAY = "pd-away"
    API_AWAY = "api-away"
    LEADER_LOST = "leader-lost"


#: A planned operation: nothing need be lost.
PLANNED: Final = frozenset({Name.RETIRE, Name.RESTART, Name.ROLLING_UPDATE, Name.DRAIN, Name.EMPTY, Name.RESTART_PODS})
#: Machines go, and no notice is given.
LOSSES: Final = frozenset({Name.RACK_LOST, Name.NODE_LOST, Name.ZONE_LOST, Name.ZONE_CUT_OFF, Name.LEADER_LOST})


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What flags say about events."""

    notice_s: float = NOTICE_S
    unannounced: bool = False
    #: Of `retire`: so many machines, of the registry's choice.
    count: int = 0
    rack_label: str = ""
    #: How long a server is away, or a zone is cut off.
    away_s: float = 300.0
    #: How much virtual time is played at most.
    limit_s: float = 1800.0


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One event on this snapshot: what it affects."""

    name: Name
    #: Seconds after the first moment.
    after_s: float
    #: "rack 2 is lost: n5 n6 n7 n8"
    title: str
    nodes: tuple[str, ...] = ()
    #: Of `rack-lost`: the node label that names racks.
    label: str = ""
    #: None: no notice is given.
    notice_s: float | None = None
    machines: tuple[str, ...] = ()
    #: Namespace and names of pods.
    pods: tuple[tuple[str, str], ...] = ()
    #: Of `restart`: those that are deleted.
    deleted: tuple[tuple[str, str], ...] = ()
    #: Kind, namespace and name of what is updated.
    target: tuple[str, str, str] | None = None
    pds: tuple[tuple[str, str], ...] = ()
    away_s: float = 0.0


def listed(names: Iterable[str]) -> str:
    """Names in order, numbers within them as numbers; the first few when there are many."""
    ordered = sorted(names, key=natural)
    if not ordered:
        return "none"
    more = f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return " ".join(ordered[:SHOWN]) + more


def there_are(typed: str, names: Iterable[str]) -> str:
    """What the snapshot has instead, and which of it was probably meant."""
    known = list(names)
    return f"there are {listed(known)}{did_you_mean(typed, known)}"


def natural(name: str) -> list[tuple[int, int, str]]:
    parts = (part for part in re.split(r"(\d+)", name) if part)
    return [(0, int(part), "") if part.isdigit() and len(part) < 20 else (1, 0, part) for part in parts]


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Operations by people, and outages of the control plane: updates, drains, and servers that are away. Pure.


_KINDS: Final = {
    **dict.fromkeys(("deployment", "deployments", "deploy"), Kind.DEPLOYMENT),
    **dict.fromkeys(("statefulset", "statefulsets", "sts"), Kind.STATEFUL_SET),
    **dict.fromkeys(("tidbcluster", "tidbclusters", "tc", "tidb"), Kind.TIDB_CLUSTER),
}
_MOORING: Final = "app.kubernetes.io/name"


def operation(name: Name, arguments: list[str], snapshot: Snapshot, options: Options, after_s: float) -> Act:
    """Raises BadEventError."""
    if len(arguments) > 1 or (name in {Name.ROLLING_UPDATE, Name.DRAIN} and not arguments):
        wanted = {
            Name.ROLLING_UPDATE: "one of deployment/NS/NAME, statefulset/NS/NAME or tidbcluster/NS/NAME",
            Name.DRAIN: "one node name",
        }
        raise BadEventError(f"{name} takes {wanted.get(name, 'at most one name')}")
    named = arguments[0] if arguments else ""
    match name:
        case Name.ROLLING_UPDATE:
            return _rolling_update(named, snapshot, after_s)
        case Name.DRAIN:
            node = _node(named, snapshot)
            return Act(name=name, after_s=after_s, title=f"node {node} is drained", nodes=(node,))
        case Name.PD_AWAY:
            return _pd_away(named, snapshot, options, after_s)
        case Name.LEADER_LOST:
            return _leader_lost(named, snapshot, after_s)
        case _:
            if named:
                raise BadEventError(f"{name} takes no name (here: {named})")
            title = f"the API server is away for {clock(options.away_s)}"
            return Act(name=name, after_s=after_s, title=title, away_s=options.away_s)


def _node(named: str, snapshot: Snapshot) -> str:
    known = [one["metadata"]["name"] for one in snapshot.of(Kind.NODE)]
    if named not in known:
        raise BadEventError(f"no node {named!r} in the snapshot; {there_are(named, known)}")
    return named


def _rolling_update(named: str, snapshot: Snapshot, after_s: float) -> Act:
    word, _, rest = named.partition("/")
    kind = _KINDS.get(word.lower())
    if kind is None or not rest:
        raise BadEventError(
            f"rolling-update {named!r}: write deployment/NS/NAME, statefulset/NS/NAME or tidbcluster/NS/NAME"
        )
    namespace, _, name = rest.rpartition("/")
    keys = [Key(*podstate.key_of(one)) for one in snapshot.of(kind)]
    found = [key for key in keys if key.name == name and namespace in {"", key.namespace}]
    if len(found) != 1:
        words = "is there more than once" if found else "is not in the snapshot"
        raise BadEventError(f"{kind} {rest!r} {words}; {there_are(rest, map(str, keys))}")
    key = found[0]
    target = (kind.value, key.namespace, key.name)
    if kind is Kind.TIDB_CLUSTER:  # its TiDB servers: TiKV is restarted one by one, with `restart`
        target = (Kind.STATEFUL_SET.value, key.namespace, f"{key.name}-tidb")
        if not any(podstate.key_of(one) == target[1:] for one in snapshot.of(Kind.STATEFUL_SET)):
            raise BadEventError(f"TidbCluster {key} has no StatefulSet {target[2]} in the snapshot")
    title = f"rolling update of {target[0]} {target[1]}/{target[2]}"
    return Act(name=Name.ROLLING_UPDATE, after_s=after_s, title=title, target=target)


def _pd_away(named: str, snapshot: Snapshot, options: Options, after_s: float) -> Act:
    known = [f"{shot.namespace}/{shot.cluster}" for shot in snapshot.pds]
    found = [one for one in known if not named or named in {one, one.partition("/")[2]}]
    if not known:
        raise BadEventError("no PD at all in the snapshot: take it with --pd NAMESPACE/CLUSTER=http://HOST:2379")
    if not found:
        raise BadEventError(f"no PD {named} in the snapshot; {there_are(named, known)}")
    title = f"PD of {listed(found)} is away for {clock(options.away_s)}"
    pds = tuple((one.partition("/")[0], one.partition("/")[2]) for one in found)
    return Act(name=Name.PD_AWAY, after_s=after_s, title=title, pds=pds, away_s=options.away_s)


def _leader_lost(named: str, snapshot: Snapshot, after_s: float) -> Act:
    """The node of one of our pods, or the one that is named: which replica leads is not in a snapshot."""
    if named:
        node = _node(named, snapshot)
    else:
        ours = [
            podstate.node_of(pod)
            for pod in snapshot.of(Kind.POD)
            if podstate.labels_of(pod).get(_MOORING) == "mooring" and podstate.node_of(pod)
        ]
        if not ours:
            raise BadEventError("no pod of Mooring in the snapshot; say on which node its leader is: leader-lost NODE")
        node = ours[0]
    title = f"node {node} is lost, and Mooring's leader with it"
    return Act(name=Name.LEADER_LOST, after_s=after_s, title=title, nodes=(node,))


#: Where a node says which rack it is in; the first of these that any node has.
RACK_LABELS: Final = ("cke.cybozu.com/rack", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone")
ZONE: Final = "topology.kubernetes.io/zone"
#: Where a node says which pool of its cloud it belongs to.
POOL_LABELS: Final = (
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
)
_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|)")
RETIRABLE: Final = frozenset(
    {MachineState.HEALTHY, MachineState.UNHEALTHY, MachineState.UNREACHABLE, MachineState.UNINITIALIZED}
)


def span(text: str) -> float:
    """Seconds of "90s", "2m", "1h" or "90"."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise BadEventError(f"{text!r} is not a duration: write 90s, 2m or 1h")
    return float(found[1]) * _UNITS[found[2]]


def acts(words: Sequence[str], snapshot: Snapshot, rules: CapacityRules, options: Options) -> list[Act]:
    """Every event that the words name, in order of time."""
    groups: list[list[str]] = [[]]
    for word in words:
        if word == "then":
            groups.append([])
        else:
            groups[-1].append(word)
    if any(not group for group in groups):
        raise BadEventError(f"name an event: one of {_names()}, several joined by `then`")
    if not options.away_s:
        raise BadEventError("--away 0s: nothing would be away; write 90s, 2m or 1h")
    found = [_act(group, snapshot, rules, options) for group in groups]
    for one in found:
        if one.after_s + (one.notice_s or one.away_s) >= options.limit_s:
            words = f"would not have happened by the end, after {clock(options.limit_s)}"
            raise BadEventError(f"{one.title}: {words}: play for longer, with --for")
    return sorted(found, key=lambda act: act.after_s)


def _act(words: list[str], snapshot: Snapshot, rules: CapacityRules, options: Options) -> Act:
    name, at, after = words[0].partition("@")
    after_s = span(after) if at else 0.0
    arguments = words[1:]
    match name:
        case Name.RACK_LOST:
            return _rack_lost(_one(name, arguments, "one rack name"), snapshot, options.rack_label, after_s)
        case Name.ZONE_LOST | Name.ZONE_CUT_OFF:
            return _zone_lost(Name(name), _one(name, arguments, "one zone name"), snapshot, options.away_s, after_s)
        case Name.NODE_LOST:
            return _node_lost(_one(name, arguments, "one node name"), snapshot, after_s)
        case Name.SPOT_GONE:
            pool = _one(name, arguments, "one pool name, or none for all spot nodes") if arguments else ""
            return _spot_gone(pool, snapshot, rules, options, after_s)
        case Name.RETIRE:
            return _retire(arguments, snapshot, options.count, after_s)
        case Name.RESTART:
            return _restart(_one(name, arguments, "one NAMESPACE/CLUSTER"), snapshot, after_s)
        case Name.EMPTY:
            nodes = tuple(_node(one, snapshot) for one in arguments or [""])
            return Act(name=Name.EMPTY, after_s=after_s, title=f"mooring drain {listed(nodes)}", nodes=nodes)
        case Name.RESTART_PODS:
            return _restart_pods(arguments, snapshot, after_s)
        case Name.ROLLING_UPDATE | Name.DRAIN | Name.PD_AWAY | Name.API_AWAY | Name.LEADER_LOST:
            return operation(Name(name), arguments, snapshot, options, after_s)
        case _:
            raise BadEventError(f"no event {name!r}; there are {_names()}{did_you_mean(name, _names().split(', '))}")


def _one(name: str, arguments: list[str], what: str) -> str:
    if len(arguments) != 1:
        raise BadEventError(f"{name} takes {what}")
    return arguments[0]


# ── One by one ────────────────────────────────────────────────────────────────────────────────────────────────────


def _rack_lost(rack: str, snapshot: Snapshot, label: str, after_s: float) -> Act:
    nodes = snapshot.of(Kind.NODE)
    key = rack_key(snapshot, label)
    if not key:
        words = label or " or ".join(RACK_LABELS)
        raise BadEventError(f"no node says which rack it is in (label {words}); name a label by --rack-label")
    found = [_name(node) for node in nodes if labels_of(node).get(key) == rack]
    if not found:
        known = {labels_of(node)[key] for node in nodes if key in labels_of(node)}
        raise BadEventError(f"no rack {rack!r} by label {key}; {there_are(rack, known)}")
    where = "rack" if key != RACK_LABELS[-1] else "zone"
    title = f"{where} {rack} is lost: {listed(found)}"
    return Act(name=Name.RACK_LOST, after_s=after_s, title=title, nodes=tuple(found), label=key)


def _zone_lost(name: Name, zone: str, snapshot: Snapshot, away_s: float, after_s: float) -> Act:
    found = [_name(node) for node in snapshot.of(Kind.NODE) if labels_of(node).get(ZONE) == zone]
    if not found:
        known = {labels_of(node).get(ZONE, "") for node in snapshot.of(Kind.NODE)} - {""}
        raise BadEventError(f"no zone {zone!r} by label {ZONE}; {there_are(zone, known)}")
    lost = name is Name.ZONE_LOST
    title = f"zone {zone} is {'lost' if lost else f'cut off from the network for {clock(away_s)}'}: {listed(found)}"
    return Act(name=name, after_s=after_s, title=title, nodes=tuple(found), away_s=0.0 if lost else away_s)


def rack_key(snapshot: Snapshot, label: str = "") -> str:
    """The node label that names racks here; none: ""."""
    nodes = snapshot.of(Kind.NODE)
    labels = (label,) if label else RACK_LABELS
    return next((key for key in labels if any(key in labels_of(node) for node in nodes)), "")


def pools(snapshot: Snapshot, rules: CapacityRules) -> dict[str, list[str]]:
    """Spot pool → its nodes; spot nodes that name no pool are in the pool ""."""
    found: dict[str, list[str]] = {}
    for node in snapshot.of(Kind.NODE):
        labels = labels_of(node)
        if rules.class_of(labels) is NodeClass.SPOT:
            found.setdefault(next((labels[key] for key in POOL_LABELS if key in labels), ""), []).append(_name(node))
    return found


def _node_lost(node: str, snapshot: Snapshot, after_s: float) -> Act:
    known = [_name(one) for one in snapshot.of(Kind.NODE)]
    if node not in known:
        raise BadEventError(f"no node {node!r} in the snapshot; {there_are(node, known)}")
    return Act(name=Name.NODE_LOST, after_s=after_s, title=f"node {node} is lost", nodes=(node,))


def _spot_gone(pool: str, snapshot: Snapshot, rules: CapacityRules, options: Options, after_s: float) -> Act:
    nodes = snapshot.of(Kind.NODE)
    known = pools(snapshot, rules)
    found = known.get(pool, []) if pool else [_name(n) for n in nodes if any(_name(n) in of for of in known.values())]
    if pool and not found:
        raise BadEventError(
            f"no spot pool {pool!r} (by label {' or '.join(POOL_LABELS)}); {there_are(pool, filter(None, known))}"
        )
    if not found:
        keys = " or ".join(label.key for label in rules.labels)
        raise BadEventError(f"none of the {len(nodes)} nodes in the snapshot is a spot node (by label {keys})")
    notice = None if options.unannounced else options.notice_s
    how = "without notice" if notice is None else f"in {notice:g} s"
    return Act(
        name=Name.SPOT_GONE,
        after_s=after_s,
        title=f"{len(found)} spot nodes{f' of pool {pool}' if pool else ''} go {how}: {listed(found)}",
        nodes=tuple(found),
        notice_s=notice,
    )


def _retire(serials: list[str], snapshot: Snapshot, count: int, after_s: float) -> Act:
    if not snapshot.machines:
        raise BadEventError(
            "the snapshot has no machines: take it with --sabakan-url URL, or set the fleet's registry first"
        )
    if fleet_settings(snapshot).get(settings.ENABLED) != "true":
        raise BadEventError(
            "the fleet is not enabled in this cluster, so Mooring does not act on its machines: mooring fleet enable"
        )
    if bool(serials) == (count > 0) or count < 0:
        raise BadEventError("retire takes serials of machines, or --count N, not both")
    addresses = {
        a["address"] for node in snapshot.of(Kind.NODE) for a in (node.get("status") or {}).get("addresses", ())
    }
    addresses |= {_name(node) for node in snapshot.of(Kind.NODE)}
    known = {one.serial: one for one in snapshot.machines}
    with_node = [s for s, one in sorted(known.items()) if one.address in addresses and one.state in RETIRABLE]
    chosen = serials or with_node[:count]
    for serial in chosen:
        if serial not in known:
            known_ones = f"those with a node are {listed(with_node)}{did_you_mean(serial, with_node)}"
            raise BadEventError(f"no machine {serial!r} in the snapshot; {known_ones}")
        if known[serial].state not in RETIRABLE:
            raise BadEventError(f"machine {serial} is {known[serial].state.lower()} and cannot be retired from there")
    if len(chosen) < count:
        raise BadEventError(f"--count {count}: only {len(with_node)} machines have a node and can be retired")
    title = f"{len(chosen)} machine{'s' if len(chosen) > 1 else ''} set to retiring: {listed(chosen)}"
    return Act(name=Name.RETIRE, after_s=after_s, title=title, machines=tuple(chosen))


def _restart(named: str, snapshot: Snapshot, after_s: float) -> Act:
    if named.startswith(("pod/", "pods/")):
        return _restart_pod(named.partition("/")[2], snapshot, after_s)
    clusters = [Key(_namespace(one), _name(one)) for one in snapshot.of(Kind.TIDB_CLUSTER)]
    wanted = [key for key in clusters if named in {str(key), key.name}]
    if len(wanted) != 1:
        words = "is there more than once" if wanted else "is not in the snapshot"
        raise BadEventError(f"TidbCluster {named!r} {words}; {there_are(named, map(str, clusters))}")
    key = wanted[0]
    if not any((shot.namespace, shot.cluster) == (key.namespace, key.name) for shot in snapshot.pds):
        raise BadEventError(
            f"the snapshot has no PD of {key}, and Mooring restarts no TiKV without one: "
            f"take it with --pd {key}=http://HOST:2379"
        )
    pods = [(_namespace(pod), _name(pod)) for pod in tikv_pods(snapshot.of(Kind.POD), key)]
    if not pods:
        raise BadEventError(f"TidbCluster {key} has no TiKV pod in the snapshot")
    title = f"every TiKV pod of {key} is asked to restart: {listed(name for _, name in pods)}"
    return Act(name=Name.RESTART, after_s=after_s, title=title, pods=tuple(sorted(pods)))


def _restart_pod(named: str, snapshot: Snapshot, after_s: float) -> Act:
    """As a person does: TiKV by annotation, so that its leaders leave first; any other pod is deleted."""
    namespace, _, name = named.rpartition("/")
    pods = [p for p in snapshot.of(Kind.POD) if _name(p) == name and namespace in {"", _namespace(p)}]
    if len(pods) != 1:
        words = "is there more than once: write pod/NAMESPACE/NAME" if pods else "is not in the snapshot"
        known = [f"{_namespace(p)}/{_name(p)}" for p in snapshot.of(Kind.POD)]
        raise BadEventError(f"pod {named!r} {words}{did_you_mean(named, known)}")
    found = (_namespace(pods[0]), name)
    keys = [Key(shot.namespace, shot.cluster) for shot in snapshot.pds]
    if any(pod is pods[0] for key in keys for pod in tikv_pods(snapshot.of(Kind.POD), key)):
        title = f"TiKV pod {'/'.join(found)} is asked to restart"
        return Act(name=Name.RESTART, after_s=after_s, title=title, pods=(found,))
    title = f"pod {'/'.join(found)} is deleted, to be recreated"
    return Act(name=Name.RESTART, after_s=after_s, title=title, deleted=(found,))


def _restart_pods(named: list[str], snapshot: Snapshot, after_s: float) -> Act:
    known = {f"{_namespace(p)}/{_name(p)}" for p in snapshot.of(Kind.POD)}
    for one in named or [""]:
        if one not in known:
            raise BadEventError(
                f"restart-pods takes NAMESPACE/POD…; the snapshot has no pod {one!r}{did_you_mean(one, known)}"
            )
    pods = tuple((one.partition("/")[0], one.partition("/")[2]) for one in named)
    title = f"mooring restart {listed(named)}"
    return Act(name=Name.RESTART_PODS, after_s=after_s, title=title, pods=pods)


# ── Words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _names() -> str:
    return ", ".join(Name)


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def _namespace(obj: Json) -> str:
    return str(obj["metadata"]["namespace"])


def fleet_settings(snapshot: Snapshot) -> dict[str, str]:
    maps = snapshot.of(Kind.CONFIG_MAP)
    return next((one.get("data") or {} for one in maps if _name(one) == settings.NAME), {})
