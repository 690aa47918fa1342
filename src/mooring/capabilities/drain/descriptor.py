"""Drain, described to the rest of the product."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mooring.capabilities.drain import nodes, request
from mooring.capabilities.drain.capability import Drain, Held
from mooring.capabilities.drain.cordon import lift_cordon
from mooring.capabilities.drain.gate import SOURCE
from mooring.capabilities.drain.policy import DrainPolicy
from mooring.capabilities.drain.prepare import ALL, KIND
from mooring.core.model.descriptor import (
    EVENTS,
    NODE_WRITES,
    POD_WRITES,
    WEBHOOK,
    Descriptor,
    Examined,
    Leftover,
    Marked,
    Right,
)
from mooring.core.model.finding import Finding, ill


def leftovers(marked: Marked) -> Iterator[Leftover]:
    yield from request.leftovers(marked.pods, (SOURCE, nodes.SOURCE), marked.replica_sets)
    for node in marked.nodes:
        if nodes.concerns(node) or nodes.MAINTAIN in node.annotations:
            drop = lift_cordon(node, nodes.SOURCE, "cleanup", also=(nodes.DRAIN, nodes.MAINTAIN))
            bare = msgspec.structs.replace(node, annotations={})
            told = nodes.conditions(bare, 0.0, empty=False)
            yield Leftover(f"node {node.name}: end its drain", (drop, *((told,) if told is not None else ())))


def report_of(engine: Any, _: Any) -> Mapping[str, Any]:
    notes = {key: value for (name, key), value in engine.notes.items() if name == "drain"}
    found = nodes.report(engine.world, engine.queue, notes, engine.now)
    return {"on": "drain" in engine.on, "leading": engine.leading, "nodes": found}


def figures(notes: Mapping[str, object]) -> Iterable[tuple[str, Mapping[str, str], float]]:
    held = [note for note in notes.values() if isinstance(note, Held)]
    yield "mooring_evictions_held", {}, float(len(held))
    yield "mooring_evictions_held_long", {}, float(sum(note.warned for note in held))


#: How many pods a finding names.
SHOWN: Final = 3


def examine(seen: Examined) -> Iterator[Finding]:
    """Evictions that were refused for longer than `drain.max-hold-s`: who drains has waited that long."""
    policy = seen.config.policy(DrainPolicy)
    marks = [(pod, request.request_of(pod)) for pod in seen.pods if pod.active]
    held = sorted(
        (mark.since, str(pod.key))
        for pod, mark in marks
        if mark is not None and mark.source == SOURCE and seen.now - mark.since > policy.max_hold_s
    )
    if not held:
        return
    names = ", ".join(key for _, key in held[:SHOWN]) + (f" and {len(held) - SHOWN} more" if len(held) > SHOWN else "")
    told = f"{names}: refused for up to {seen.now - held[0][0]:.0f} s"
    fix = f"mooring why pod/{held[0][1]}   (kubectl delete pod goes past the gate)"
    yield ill("drain", "MO903", "evictions pass in time", told, fix, warning=True)


DESCRIPTOR = Descriptor(
    name="drain",
    sources=(SOURCE, nodes.SOURCE),
    policy=DrainPolicy,
    make=lambda config: Drain(config.policy(DrainPolicy)),
    serves=("gate",),
    limits={ALL: (100, "pods that are prepared for an eviction at once")},
    # Pods are marked, taken from their ReplicaSet or given back, and evicted where a person drains their node.
    rights=(
        EVENTS,
        *POD_WRITES,
        NODE_WRITES,
        Right("", "nodes/status", ("patch",)),
        Right("lifecycle.k8s.io", "evictions", ("get",)),
        Right("lifecycle.k8s.io", "evictions/status", ("patch",)),
        *WEBHOOK,
    ),
    gauges={
        "mooring_evictions_held": ("Pods whose eviction is held until they are prepared", ()),
        "mooring_evictions_held_long": ("Pods whose eviction was held for longer than drain.max-hold-s", ()),
    },
    figures=figures,
    phrases={KIND: ("{it} being prepared for its eviction", "when its eviction takes it")},
    request="an eviction",
    leftovers=leftovers,
    report=report_of,
    examine=examine,
    codes={"MO903": "An eviction has been refused for long"},
)
