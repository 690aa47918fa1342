"""Mix, described to the rest of the product."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.capabilities.mix import memory
from mooring.capabilities.mix.capability import Mix
from mooring.capabilities.mix.explain import all_workloads, one_workload
from mooring.capabilities.mix.labels import ENABLED, MODE
from mooring.capabilities.mix.policy import MixPolicy
from mooring.capabilities.mix.release import undo
from mooring.core.model.descriptor import EVENTS, MEMORY, NODE_WRITES, POD_WRITES, Descriptor, Leftover, Marked, Right
from mooring.core.model.kinds import Kind

TLS_SECRET: Final = "mooring-webhook-tls"  # noqa: S105
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
_HOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


def hooks(*verbs: str) -> tuple[Right, ...]:
    """On both webhook configurations of ours. Not `create`, which knows no names: the installer has made them."""
    return tuple(Right("admissionregistration.k8s.io", hook, verbs, names=("mooring-mix",)) for hook in _HOOKS)


def leftovers(marked: Marked) -> Iterator[Leftover]:
    for one in undo(marked.pods, marked.nodes, marked.replica_sets):
        yield Leftover(one.what, (one.write,))


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
    },
    uncapped=("spot",),
    # Pods moved, nodes cordoned on notice; certificates and webhook configurations kept.
    rights=(
        EVENTS,
        *POD_WRITES,
        NODE_WRITES,
        MEMORY,
        Right("", "secrets", ("get", "update"), own=True, names=(TLS_SECRET,)),
        Right("", "secrets", ("create",), own=True),
        *hooks("get", "update", "delete"),
    ),
    phrases={"move-replica": ("{it} moving", "when its replacement is Ready")},
    request="a move",
    leftovers=leftovers,
    objects=((Kind.CONFIG_MAP, memory.NAME), (Kind.SECRET, TLS_SECRET)),
    report=all_workloads,
    detail=one_workload,
    refused=(REFUSED, _BAD_MODE),
)
