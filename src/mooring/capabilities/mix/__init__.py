"""Mix: replicas of one workload across on-demand and spot nodes.

Two halves share this package. Admission gives each new pod its place; the rebalancer corrects what admission could not.

What both stand on (all pure):

    targets     Target(mode, share): .on_demand(R) = T(R), .class_of(slot), .sequence(R); default_target(kind, …)
    labels      management_of(workload, policy.deployment_target) -> Managed(target, …) | Unmanaged | Misconfigured
                the keys (ENABLED, MODE, CUSTOM, REBALANCE; on pods AFFINITY, SLOT, RESERVATION, CONFLICT, RELAXED,
                DELETION_COST); slot_of(pod) -> int | None; parse_share(text)
    policy      MixPolicy (config key `mix`): capacity, spot_tolerations, deployment_default, on_disable, on_shortage …
    slots       class_of(pod, world) -> the class a pod counts as: the one it was given, else that of its node;
                Ledger (who holds which slot of one owner, kept by changes): .lowest_free(), .choose(slot, target, R);
                owner_of(pod, world) -> Managing(owner uid, workload, replicas)
    validation  judge(draft, before) -> Judgement(problems, warnings): what /admit/workloads answers
    admission   Admission(policy): .decide(request, world, now, token) -> Decision | Wait; .observe(change, world);
                .reserved(owner_uid, now) -> live reservations (the rebalancer's health gate asks it);
                .relax(workload_uid, until): until then its on-demand pods prefer instead of require

A slot belongs to an owner uid: a ReplicaSet (so each revision has its own slots) or a StatefulSet (slot = ordinal −
start). A free slot is refilled lowest first, and a pod takes the class of its slot, unless the others are off their
sequence: then it takes the class that brings the total to T(R). So to turn a spot replica into an on-demand one it is
enough to let any one spot pod go: its successor is admitted with the class that is missing.

The rebalancer and interruptions:

    decider     Mix(policy, namespace=…): the capability; keys `workload/<kind>/<ns>/<name>` and `node/<name>`
    workload    Rebalance: one look at one workload; rebalance: who stands wrong, victims, slots; health: who is missing
    interrupt   Interruption: one look at one interrupted node; notices, interrupted: who says that a node goes
    move        the operator `move-replica`; detach: the replacement first; room: would a node take it
    memory      what outlives a process so that nothing loops; pace: the settings; explain, release: words, and undoing

Both halves share one `Admission`: the capability named `mix` owns it as its attribute `admission`, and the replica's
webhook (`process/admission/reviewer.py`) asks that one.
"""
