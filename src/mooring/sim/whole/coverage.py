"""What happened in a run, counted by name: shows that the simulation reaches what it is meant to.

Every deed counts itself when it found something to do. The others are situations that are known to be
dangerous; a name that never fires over many seeds says that the simulation does not reach that situation.
"""

from collections import Counter
from typing import Final

from mooring.sim.whole.plan import deed_names

#: Situations, and what each means.
SITUATIONS: Final[dict[str, str]] = {
    "operator-queued-balance": "a source proposed an operator",
    "operator-queued-fleet": "a source proposed an operator",
    "operator-queued-handoff": "a source proposed an operator",
    "operator-queued-home": "a source proposed an operator",
    "operator-queued-mix": "a source proposed an operator",
    "operator-queued-spot": "a source proposed an operator",
    "operator-resumed": "a new leader read an operator back from its mark",
    "operator-canceled": "an operator ended without having reached its goal",
    "operator-failed": "an operator gave up",
    "operator-waited-on-a-fact": "what is broken already kept an operator waiting",
    "operator-parked-by-budget": "a disruption budget refused an eviction",
    "write-conflicted": "another client was faster, and the operator decided again",
    "write-unanswered": "a write got no answer, so its object was read",
    "killed-between-mark-and-deletion": "a hand-over was interrupted between its mark and the deletion of its pod",
    "killed-with-scheduler-in-pd": "a replica died while its evict-leader scheduler stood in PD",
    "killed-with-detached-pod": "a replica died while a pod of its was detached",
    "killed-while-retiring": "a replica died while a node was being emptied",
    "killed-while-node-reserved": "a replica died while a node was reserved for a member",
    "two-leaders": "a paused leader went on while another led",
    "late-write-of-old-leader": "a paused leader wrote after it went on",
    "withdrawn-after-replacement-stood": "a notice was withdrawn when a replacement was already Ready",
    "noticed-node-had-tikv": "a node with a TiKV pod got notice",
    "noticed-while-retiring": "a node got notice while a machine was retiring",
    "node-vanished-with-mark": "a node vanished that carried a mark of ours",
    "no-execute-set": "the NoExecute taint of a retiring machine was set",
    "no-execute-lifted": "that taint was taken off again",
    "cordoned-by-us": "we cordoned a node",
    "cordon-lifted-by-us": "we took our cordon off",
    "pod-detached": "a pod was detached so that its replacement comes first",
    "pod-evicted-by-us": "we evicted a pod",
    "tikv-deleted-by-us": "we deleted a TiKV pod without leaders",
    "store-eviction-begun": "we put an evict-leader scheduler into PD",
    "store-eviction-ended": "we took it out again",
    "pd-restarted-during-eviction": "PD restarted while leaders were leaving a store",
    "pd-leader-transferred": "we asked PD to hand its leadership on",
    "pd-operator-added": "balance gave PD an operator",
    "pd-scheduler-paused": "balance paused a scheduler of PD",
    "node-reserved": "a node was reserved for a member",
    "control-plane-changed": "the stored cluster got another control plane",
    "worker-removed": "a worker left the stored cluster",
    "webhook-refused": "the API server found no webhook and went by its failure policy",
    "pod-admitted-on-demand": "the webhook tied a pod to on-demand nodes",
    "pod-admitted-spot": "the webhook let a pod prefer spot nodes",
    "pod-relaxed": "a pod that found no on-demand room was let go elsewhere",
    "feature-off-with-operator-running": "a feature was switched off while its operator ran",
    "person-removed-our-scheduler": "a person took our evict-leader scheduler out of PD",
    "mark-gone-under-operator": "a person deleted a mark while its operator ran",
    "watch-lagged-during-operator": "an operator ran while the watches lagged",
    "member-came-home": "a recreated member was bound to the node it had",
    "below-the-on-demand-floor": "a workload had fewer on-demand replicas than it asks for",
    "quorum-kept-under-notice": "a StatefulSet's pod on a node with notice went while a quorum stayed",
    "leader-changed": "another replica took the lease",
    "blocked-with-reason": "something ended as blocked, with a reason a person can act on",
}


def names() -> list[str]:
    return sorted([*(f"action {name}" for name in deed_names()), *SITUATIONS])


class Coverage:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def hit(self, name: str, times: int = 1) -> None:
        self.counts[name] += times


def never(counts: Counter[str]) -> list[str]:
    """Names that did not fire."""
    return [name for name in names() if not counts[name]]
