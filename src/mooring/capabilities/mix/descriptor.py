"""Mix, described to the rest of the product."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.capabilities.drain import request
from mooring.capabilities.drain.cordon import is_ours, lift_cordon
from mooring.capabilities.drain.signals import departures
from mooring.capabilities.mix import memory, schemes, worth
from mooring.capabilities.mix.capability import Mix
from mooring.capabilities.mix.explain import all_workloads, one_workload
from mooring.capabilities.mix.interruption.notices import SOFT_TAINT, has_soft_taint, mark_of
from mooring.capabilities.mix.interruption.notices import SOURCE as SPOT
from mooring.capabilities.mix.labels import ENABLED, MODE
from mooring.capabilities.mix.policy import SOURCES, MixPolicy
from mooring.capabilities.mix.rebalance import returns
from mooring.capabilities.mix.rebalance.diagnosis import WorkloadNotes
from mooring.core.model.descriptor import (
    EVENTS,
    MEMORY,
    NODE_WRITES,
    POD_WRITES,
    TLS_SECRET,
    WEBHOOK,
    Descriptor,
    Leftover,
    Marked,
)
from mooring.core.model.instructions import EditTaints
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason

_BAD_MODE: Final = "mooring-doctor-asks"
#: A workload with a mode that does not exist.
REFUSED: Final[Mapping[str, Any]] = {
    "metadata": {"name": "mooring-doctor", "namespace": "default", "labels": {ENABLED: "true", MODE: _BAD_MODE}},
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "mooring-doctor"}},
        "template": {
            "metadata": {"labels": {"app": "mooring-doctor"}},
            "spec": {"containers": [{"name": "none", "image": "none"}]},
        },
    },
}
ROOM: Final = ("look at", "kubectl get nodes -L node.kubernetes.io/capacity")


def leftovers(marked: Marked) -> Iterator[Leftover]:
    """Also what `mooring mix release` undoes: only what a mark says we did."""
    names = {node.name for node in marked.nodes} or None
    yield from request.leftovers(marked.pods, SOURCES, marked.replica_sets, names, "released")
    for node in sorted(marked.nodes, key=lambda n: n.name):
        mark = mark_of(node)
        if mark is not None:
            words = "lift our cordon" if is_ours(mark) else "drop the mark; the cordon was there before"
            yield Leftover(f"node {node.name}: {words}", (lift_cordon(node, SPOT, "released"),))
        if has_soft_taint(node):
            edit = EditTaints(node=node.name, uid=node.uid, remove=(SOFT_TAINT,), why="released")
            yield Leftover(f"node {node.name}: remove the taint {SOFT_TAINT.key}", (edit,))


def figures(notes: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    yield from worth.figures(worth.together(_known(notes)))


def words(notes: Mapping[str, object], policy: MixPolicy) -> str:
    all_ = worth.together(_known(notes))
    return worth.last_line(worth.told(all_, policy.prices)) if all_.replicas else ""


def _known(notes: Mapping[str, object]) -> Iterator[worth.Worth]:
    return (note.worth for note in notes.values() if isinstance(note, WorkloadNotes) and note.worth is not None)


DESCRIPTOR = Descriptor(
    name="mix",
    sources=("mix", "spot"),
    policy=MixPolicy,
    capacity=lambda policy: policy.capacity,
    make=lambda config: Mix(config.policy(MixPolicy), namespace=config.namespace),
    serves=("webhook",),
    limits={
        "workload": (1, "replicas away at once"),
        "node": (20, "what leaves one node at once"),
        returns.TARGET: (returns.AT_LEAST, "replicas that return to spot in a minute"),
    },
    uncapped=("spot",),
    # Pods moved, nodes cordoned on notice; certificates and webhook configurations kept.
    rights=(
        EVENTS,
        *POD_WRITES,
        NODE_WRITES,
        MEMORY,
        *WEBHOOK,
    ),
    gauges=worth.GAUGES,
    figures=figures,
    worth=words,
    departures=lambda policy, node: departures(node, policy.interruption.detectors),
    commands=lambda reason, _: [ROOM] if reason is Reason.NO_ROOM else [],
    phrases={"replace-pod": ("{it} moving", "when its replacement is Ready")},
    request="a move",
    leftovers=leftovers,
    objects=((Kind.CONFIG_MAP, memory.NAME), (Kind.SECRET, TLS_SECRET)),
    report=all_workloads,
    detail=one_workload,
    examine=schemes.examine,
    codes=schemes.CODES,
    refused=(REFUSED, _BAD_MODE),
)
