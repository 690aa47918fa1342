"""What the engine asks of the shell: small values, each with its own id and the id of what caused it.

Only `run.act` carries them out. Those that change something outside carry their precondition (uid, resourceVersion);
a capability leaves `id` and `cause` empty and the engine stamps them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from mooring.core.model.cluster import NO_EXECUTE, Key, Taint
from mooring.core.model.events import Gone, Object
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason


class _Instruction(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    id: str = ""
    #: The operator, capability key or event behind it.
    cause: str = ""
    #: In words, for logs and for `why`.
    why: str = ""


class Patch(_Instruction, frozen=True, gc=False, kw_only=True):
    """A patch on one object, refused by the server unless uid (and resourceVersion, when given) still hold."""

    kind: Kind
    key: Key
    uid: str
    #: Compare-and-swap; "" leaves it out, for patches that touch only keys of ours.
    resource_version: str = ""
    patch: Mapping[str, Any]
    #: `status`: then it is a strategic merge patch, so that the conditions of others stay.
    subresource: str = ""


class Create(_Instruction, frozen=True, gc=False, kw_only=True):
    """Create an object with a fixed name; that it is there already counts as done."""

    kind: Kind
    object: Mapping[str, Any]


class DeletePod(_Instruction, frozen=True, gc=False, kw_only=True):
    """Delete exactly this pod. `evict` asks the eviction API, so that a PodDisruptionBudget may refuse."""

    key: Key
    uid: str
    evict: bool = True
    grace_s: int | None = None


class DeleteNode(_Instruction, frozen=True, gc=False, kw_only=True):
    """Delete exactly this Node object, if a live read shows it not Ready, and no pod on it but those of DaemonSets."""

    node: str
    uid: str


class EditTaints(_Instruction, frozen=True, gc=False, kw_only=True):
    """Add and remove taints of ours on a node, and set annotations (None removes) in the same write.

    The list of taints can only be written whole, so it is read first and everything that is not ours stays as it was.
    A taint to add replaces one of the same key and effect; one to remove goes by key and effect. None that is added
    ends a running pod: that is `CutOff`.
    """

    node: str
    uid: str
    add: tuple[Taint, ...] = ()
    remove: tuple[Taint, ...] = ()
    annotations: Mapping[str, str | None] = MappingProxyType({})

    def __post_init__(self) -> None:
        if any(taint.effect == NO_EXECUTE for taint in self.add):
            raise ValueError("NoExecute ends running pods: an operator sets it, by CutOff")


class CutOff(_Instruction, frozen=True, gc=False, kw_only=True):
    """Add `NoExecute` taints to a node, as `EditTaints` adds others: pods that do not tolerate them end.

    `may_cut_off`: a live list of the node's pods shows none that they would end but these (by uid). None: it is not
    asked.
    """

    node: str
    uid: str
    add: tuple[Taint, ...]
    annotations: Mapping[str, str | None] = MappingProxyType({})
    may_cut_off: tuple[str, ...] | None = ()


class AddEvictLeader(_Instruction, frozen=True, gc=False, kw_only=True):
    cluster: Key
    store_id: int


class RemoveEvictLeader(_Instruction, frozen=True, gc=False, kw_only=True):
    cluster: Key
    store_id: int
    #: A TidbCluster on the same PD, through which it is asked; None: the cluster itself.
    via: Key | None = None


class HoldPdLock(_Instruction, frozen=True, gc=False, kw_only=True):
    """Take PD's maintenance lock under a name that is ours alone; refused while another one is held."""

    cluster: Key
    lock_id: str
    description: str = ""


class ReleasePdLock(_Instruction, frozen=True, gc=False, kw_only=True):
    """Give that lock back; another holder's stays."""

    cluster: Key
    lock_id: str
    via: Key | None = None


class TransferPdLeader(_Instruction, frozen=True, gc=False, kw_only=True):
    cluster: Key
    to: str


class MoveLeaders(_Instruction, frozen=True, gc=False, kw_only=True):
    """Move what a member of a system with leaders leads to another one."""

    #: Its StatefulSet.
    workload: Key
    member: str
    to: str


class ReleaseLeaders(_Instruction, frozen=True, gc=False, kw_only=True):
    """It stays after all, and may lead again."""

    workload: Key
    member: str


class AddPdOperator(_Instruction, frozen=True, gc=False, kw_only=True):
    cluster: Key
    region_id: int
    body: Mapping[str, Any]


class CancelPdOperator(_Instruction, frozen=True, gc=False, kw_only=True):
    """Cancel what PD runs on a region, if it is still the one described here; gone already counts as done."""

    cluster: Key
    region_id: int
    desc: str
    brief: str


class PausePdScheduler(_Instruction, frozen=True, gc=False, kw_only=True):
    cluster: Key
    name: str
    seconds: int


class ReadPd(_Instruction, frozen=True, gc=False, kw_only=True):
    """One look at a PD cluster; answered by a PdSeen or PdLost event. `stores`: those about to go away."""

    cluster: Key
    stores: tuple[int, ...] = ()


class ReadLeaders(_Instruction, frozen=True, gc=False, kw_only=True):
    """One look at a system with leaders; answered by a LeadersSeen event."""

    workload: Key


class ReadRegions(_Instruction, frozen=True, gc=False, kw_only=True):
    """Read a PD cluster's regions: those named, or the first `limit` from a key on (0: all); answered by a RegionsSeen
    event and an Outcome."""

    cluster: Key
    region_ids: tuple[int, ...] = ()
    start_key: str = ""
    limit: int = 0


class ReadMachines(_Instruction, frozen=True, gc=False, kw_only=True):
    """One query of the machine registry; answered by MachinesSeen or MachinesLost."""


class EmitEvent(_Instruction, frozen=True, gc=False, kw_only=True):
    """A Kubernetes Event on an object."""

    kind: Kind
    key: Key
    uid: str
    reason: Reason
    message: str
    warning: bool = False


#: These change something outside, so only the lease holder may carry them out.
Write = (
    Patch
    | Create
    | DeletePod
    | DeleteNode
    | EditTaints
    | CutOff
    | AddEvictLeader
    | RemoveEvictLeader
    | HoldPdLock
    | ReleasePdLock
    | TransferPdLeader
    | MoveLeaders
    | ReleaseLeaders
    | AddPdOperator
    | CancelPdOperator
    | PausePdScheduler
)
Look = ReadPd | ReadLeaders | ReadRegions | ReadMachines
#: What a capability may ask for beside the queue: it disturbs nobody. No deletion or eviction of a pod, no leader taken
#: off a store, no `NoExecute` taint: those are steps of operators (`NextStep.instructions`), and mypy refuses them
#: here. A pause of PD's own schedulers ends by itself within a minute; a Node is deleted only where a live list shows
#: nobody.
HarmlessWrite = (
    Patch | Create | EditTaints | DeleteNode | PausePdScheduler | ReadPd | ReadRegions | ReadMachines | EmitEvent
)
Instruction = Write | Look | EmitEvent


class Outcome(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How an instruction ended. `reason` None: done, seen to be so. Otherwise nothing is known to have changed."""

    instruction: str
    reason: Reason | None = None
    detail: str = ""
    #: The object as it is after the write, when the server told us.
    kind: Kind | None = None
    object: Object | None = None
    #: Seen not to be there any more. With its uid: by the time this is read, a successor may stand under its name.
    gone: Gone | None = None
    #: When a refused one may be tried again.
    retry_after_s: float = 0.0
    #: It was a look: nothing was written.
    looked: bool = False
