"""An operator: something that moves, in steps, at a cost on named targets.

The terms of seed 001, extended from stores to everything that moves. A *target* is a name with a limit (`store/demo/4`,
`tikv/tidb/demo`, `node/n7`, …); an operator has an integer cost on each target it touches. Costs may fall in phases
known at admission; they never rise.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from mooring.core.model.reasons import Reason


class StepKind(StrEnum):
    # Seed 001: region steps.
    TRANSFER_LEADER = "TransferLeader"
    ADD_PEER = "AddPeer"
    ADD_LEARNER = "AddLearner"
    PROMOTE_LEARNER = "PromoteLearner"
    REMOVE_PEER = "RemovePeer"
    MERGE_REGION = "MergeRegion"
    SPLIT_REGION = "SplitRegion"
    # Leaders off a store.
    EVICT_LEADERS = "EvictLeaders"
    HOLD_EMPTY = "HoldEmpty"
    END_EVICTION = "EndEviction"
    TRANSFER_PD_LEADER = "TransferPdLeader"
    #: Leadership of a system with leaders, off one member.
    MOVE_LEADERS = "MoveLeaders"
    # Pods.
    ADD_REPLACEMENT = "AddReplacement"
    DELETE_POD = "DeletePod"
    AWAIT_READY = "AwaitReady"
    AWAIT_EVICTION = "AwaitEviction"
    RESERVE_NODE = "ReserveNode"
    RELEASE_NODE = "ReleaseNode"
    # Machines and nodes.
    CORDON = "Cordon"
    EMPTY_NODE = "EmptyNode"
    TAINT = "Taint"
    STORE_CLUSTER = "StoreCluster"


class Step(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One step. Region steps name stores; the others work on their operator's subject."""

    kind: StepKind
    #: AddPeer, AddLearner, PromoteLearner (receiver), RemovePeer (giver).
    store: int | None = None
    #: TransferLeader.
    from_store: int | None = None
    to_store: int | None = None


NO_COST: Final[Mapping[str, int]] = MappingProxyType({})


class Payload(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the steps of one kind of operator need to know besides its subject. Each kind has a struct of its own, with
    its own fields; those here are the objects that it names: an event about one of them concerns the operator, and
    `why` and the page read them for every kind."""

    #: "<namespace>/<name>".
    pod: str = ""
    #: Of that pod.
    uid: str = ""
    node: str = ""
    #: "<namespace>/<name>" of a TidbCluster.
    cluster: str = ""
    #: "<Kind>/<namespace>/<name>", and the uid of that very one.
    workload: str = ""
    workload_uid: str = ""
    #: Serial of a machine.
    serial: str = ""
    #: A store of `cluster`; 0: none.
    store_id: int = 0

    def names(self) -> tuple[str, ...]:
        named = {"pod": self.pod, "node": self.node, "cluster": self.cluster, "workload": self.workload}
        return tuple(f"{kind}/{name}" for kind, name in named.items() if name)


NO_PAYLOAD: Final = Payload()


class Operator(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    id: str
    #: Who proposed it: the design's "scheduler" (`balance-region`, `handoff`, `mix`, `spot`, …). Caps count by it.
    source: str
    #: What it does, as the proposer calls it: "restart-tikv", "evict-leaders", "replace-pod", "retire-machine", …
    kind: str
    #: The object it is about: "pod/<ns>/<name>", "region/<cluster>/<id>", "machine/<serial>", "store/<cluster>/<id>", …
    subject: str
    #: Whose share of its source's cap it counts against: a namespace or a cluster, so that none starves another.
    quota: str = ""
    #: Everything it claims exclusively (at least its subject; a merge claims two regions).
    claims: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    #: Cost per target, by phase: `phases[0]` is charged at promotion, and `advance(id, k)` lowers it to `phases[k]`.
    phases: tuple[Mapping[str, int], ...] = (NO_COST,)
    #: Epoch seconds; those with a deadline go before those without, the earliest first.
    deadline: float | None = None
    #: Higher replaces lower on the same subject, where the queue allows replacement. 0: plain arrival order.
    priority: int = 0
    #: From promotion. None: it has a mark and keeps its cost until observation ends it.
    timeout_s: float | None = None
    reason: Reason = Reason.ASKED
    #: The reason in words, for people: "annotation tidb.pingcap.com/restart".
    detail: str = ""
    #: Id of the event or operator that caused it.
    cause: str = ""
    payload: Payload = NO_PAYLOAD

    @property
    def cost(self) -> Mapping[str, int]:
        return self.phases[0]
