"""The events: a few words on the command line, checked against the snapshot before anything is played.

    rack-lost 2        node-lost n7        zone-lost a        spot-gone        retire M004 M005        restart tidb/demo

Several are joined by `then`; `@90s` behind an event's name says when it begins, counted from the first moment:
`rack-lost 2 then spot-gone@90s`. What the snapshot does not have is an error that lists what it has.
"""

import re
from collections.abc import Sequence
from typing import Final

from mooring.capabilities.fleet.live import settings
from mooring.clients.ports import Json
from mooring.core.model.capacity import CapacityRules, NodeClass
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.spelling import did_you_mean
from mooring.core.model.times import clock
from mooring.rehearse.events.act import LOSSES, PLANNED, Act, BadEventError, Name, Options, listed, natural, there_are
from mooring.rehearse.events.operations import operation
from mooring.rehearse.snapshot.schema import Snapshot
from mooring.rehearse.snapshot.stores import tikv_pods
from mooring.sandbox.controllers.podstate import labels_of

__all__ = ["LOSSES", "PLANNED", "Act", "BadEventError", "Name", "Options", "acts", "listed", "natural", "span"]

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
        raise BadEventError(f"{text!r} is not a span of time: write 90s, 2m or 1h")
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
            return _rack_lost(_one(name, arguments, "a rack"), snapshot, options.rack_label, after_s)
        case Name.ZONE_LOST | Name.ZONE_CUT_OFF:
            return _zone_lost(Name(name), _one(name, arguments, "a zone"), snapshot, options.away_s, after_s)
        case Name.NODE_LOST:
            return _node_lost(_one(name, arguments, "a node"), snapshot, after_s)
        case Name.SPOT_GONE:
            pool = _one(name, arguments, "one pool, or nothing for all spot nodes,") if arguments else ""
            return _spot_gone(pool, snapshot, rules, options, after_s)
        case Name.RETIRE:
            return _retire(arguments, snapshot, options.count, after_s)
        case Name.RESTART:
            return _restart(_one(name, arguments, "NAMESPACE/CLUSTER"), snapshot, after_s)
        case Name.ROLLING_UPDATE | Name.DRAIN | Name.PD_AWAY | Name.API_AWAY | Name.LEADER_LOST:
            return operation(Name(name), arguments, snapshot, options, after_s)
        case _:
            raise BadEventError(f"no event {name!r}; there are {_names()}{did_you_mean(name, _names().split(', '))}")


def _one(name: str, arguments: list[str], what: str) -> str:
    if len(arguments) != 1:
        raise BadEventError(f"{name} wants {what} behind it, and nothing else")
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
        raise BadEventError("retire wants serials of machines, or --count N, and not both")
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
