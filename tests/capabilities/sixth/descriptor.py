"""A tiny sixth capability: a node with the label `sixth=asked` gets `sixth=done`, two nodes at a time."""

from dataclasses import dataclass, field

import msgspec

from mooring.core.model.decision import End, Evaluation, NextStep
from mooring.core.model.descriptor import Descriptor, Leftover, Right
from mooring.core.model.events import Change
from mooring.core.model.finding import ill
from mooring.core.model.instructions import Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator, Payload, Step, StepKind


def label(node, value):
    patch = {"metadata": {"labels": {"sixth": value}}}
    return Patch(kind=Kind.NODE, key=node.key, uid=node.uid, patch=patch, why="says so")


class SixthPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: How long a node waits before it gets its label.
    wait_s: float = 2.0


@dataclass(frozen=True)
class Sixth:
    policy: SixthPolicy = field(default_factory=SixthPolicy)
    name = "sixth"
    sources = frozenset({"sixth"})

    def affected_keys(self, trigger, world):
        return [str(trigger.key)] if isinstance(trigger, Change) and trigger.kind is Kind.NODE else []

    def keys(self, world):
        return [node.name for node in world.nodes()]

    def indexes(self):
        return ()

    def evaluate(self, key, world, queue, notes, now):
        node = world.node(key.lstrip("/"))
        if node is None or node.labels.get("sixth") != "asked":
            return Evaluation(notes=now)
        operator = Operator(
            id="",
            source="sixth",
            kind="sixth-label",
            subject=f"node/{node.name}",
            steps=(Step(StepKind.CORDON),),
            phases=({"sixth": 1},),
            payload=Payload(node=node.name, uid=node.uid),
        )
        return Evaluation(proposals=(operator,), notes=now)

    def next_step(self, running, world, queue, now):
        node = world.node(running.operator.payload.node)
        if node is None or node.labels.get("sixth") == "done":
            return NextStep(step=0, end=End())
        begins_at = running.promoted_at + self.policy.wait_s
        if now < begins_at:
            return NextStep(step=0, again_at=begins_at)
        return NextStep(step=0, instructions=(label(node, "done"),))

    def recover(self, world, queue, now):
        return ()

    def recovery_needs(self, world):
        return ()

    def explain(self, subject, world, queue, now):
        return ()


DESCRIPTOR = Descriptor(
    name="sixth",
    sources=("sixth",),
    policy=SixthPolicy,
    make=lambda config: Sixth(config.policy(SixthPolicy)),
    limits={"sixth": (2, "nodes labelled at once")},
    rights=(Right("", "nodes", ("get", "patch")), Right("sixth.example", "sixths", ("get",))),
    gauges={"mooring_sixth_evaluated": ("Nodes looked at by the sixth", ())},
    figures=lambda notes: [("mooring_sixth_evaluated", {}, len(notes))],
    phrases={"sixth-label": ("{it} being labelled", "when {it} is labelled")},
    request="a label",
    key_kind="node",
    leftovers=lambda marked: [
        Leftover(f"node {n.name}: sixth", (label(n, None),)) for n in marked.nodes if n.labels.get("sixth")
    ],
    report=lambda engine, config: {"nodes": sorted(n.name for n in engine.world.nodes())},
    detail=lambda engine, name: {"label": n.labels.get("sixth")} if (n := engine.world.node(name)) else None,
    settings_map="sixth-settings",
    codes={"MO999": "The sixth is not set"},
    examine=lambda seen: [ill("sixth", "MO999", "its settings", f"{seen.settings}", "write them")] if seen.on else [],
)
