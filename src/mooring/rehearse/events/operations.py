"""Operations by people, and outages of the control plane: updates, drains, and servers that are away. Pure."""

from typing import Final

from mooring.core.model.cluster import Key
from mooring.core.model.kinds import Kind
from mooring.core.model.times import clock
from mooring.rehearse.events.act import Act, BadEventError, Name, Options, listed, there_are
from mooring.rehearse.snapshot.schema import Snapshot
from mooring.sandbox.controllers import podstate

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
            Name.ROLLING_UPDATE: "deployment/NS/NAME, statefulset/NS/NAME or tidbcluster/NS/NAME",
            Name.DRAIN: "a node",
        }
        raise BadEventError(f"{name} wants {wanted.get(name, 'at most one name')} behind it, and nothing else")
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
                raise BadEventError(f"{name} takes nothing behind it (here: {named})")
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
