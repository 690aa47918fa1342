"""Marks: what has begun is written on the object it disturbs, before it is disturbed.

A mark names operator, source, reason, step, since when, and what was there before: we undo only what a mark says we
did. It is a small JSON value in an annotation of ours, readable by a person with kubectl. A mark that cannot be read
is reported and left alone.

Other clients can write marks too: any user who may edit a pod or a TidbCluster can forge one. So a mark counts only
on the object it was written for, and only for things of that object's own namespace; docs/security.md lists each of
them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final

import msgspec

from mooring.core.model.cluster import Pod
from mooring.core.model.tidb import Number

HANDOFF: Final = "mooring.dev/handoff"
LEAVING: Final = "mooring.dev/leaving"
#: How the reason of a node condition begins that Mooring sets.
OWN_REASON: Final = "Mooring"
#: Mooring as a responder of Kubernetes' own Eviction API.
RESPONDER: Final = "mooring.dev/drain"
#: Of a NodeClaim of Karpenter; put on the row of its Node (`process.karpenter`).
TERMINATES_AT: Final = "karpenter.sh/nodeclaim-termination-timestamp"
CORDONED_BY: Final = "mooring.dev/cordoned-by"
RETIRING: Final = "mooring.dev/retiring"
#: What `mooring.agent.watch` writes on its own Node: signs that the machine goes, and others for people alone.
AGENT: Final = "mooring.dev/agent"
HOME: Final = "mooring.dev/home"
RESERVED_TAINT: Final = "mooring.dev/reserved"
PD_ENDPOINTS: Final = "mooring.dev/pd-endpoints"
#: On a TidbCluster: how far its log backup has come, as whoever can read that says.
LOG_BACKUP_CHECKPOINT: Final = "mooring.dev/log-backup-checkpoint"
#: The step of a mark that only records that this request was given up and is not retried until it changes.
GAVE_UP: Final = "GaveUp"
#: The value of a request to stop before the pod is deleted.
PREPARE: Final = "prepare"
#: One that can be shown: up to the year 9999.
Moment = Annotated[float, msgspec.Meta(ge=0, lt=253402300800)]


class Mark(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, rename="camel"):
    operator: str
    source: str
    reason: str
    step: str
    #: Epoch seconds.
    since: Moment
    detail: str = ""
    #: "<namespace>/<name>", where the mark stands on another object than the pod it is about.
    pod: str = ""
    #: Of the pod about to be disturbed.
    pod_uid: str = msgspec.field(default="", name="podUID")
    pod_create_time: str = ""
    store_id: Number = msgspec.field(default=0, name="storeID")
    #: The PD that led when it began (`PdView.life`).
    pd: str = ""
    #: That PD's cluster id.
    pd_id: str = msgspec.field(default="", name="pdID")
    node: str = ""
    #: Serial number of the machine a mark on a node is about.
    machine: str = ""
    #: `none` or `delete-pod`, the design's word.
    value: str = ""
    deadline: Moment | None = None
    #: Id of the second operator of a pair (the restart that follows an eviction), once it has begun.
    restart: str = ""
    #: What was there before us ("evicting": "true", "unschedulable": "false"): not ours to undo.
    before: Mapping[str, str] = MappingProxyType({})

    @property
    def evicts(self) -> bool:
        """Of a hand-over: that store's evict-leader scheduler is ours. What was given up evicts nothing any more."""
        return self.step != GAVE_UP and self.before.get("evicting") != "true"


#: Far more than all marks of a large cluster take; an annotation can be 256 KiB.
LONGEST: Final = 64 << 10
_marks = msgspec.json.Decoder(dict[str, Mark])
_mark = msgspec.json.Decoder(Mark)


def read_marks(text: str) -> dict[str, Mark] | None:
    """A map of marks (one annotation for several pods). None: not readable, so not ours to touch."""
    try:
        marks = _marks.decode(text[: LONGEST + 1]) if text else {}
    except (msgspec.DecodeError, RecursionError):
        return None
    return marks if all(name.isprintable() and _printable(mark) for name, mark in marks.items()) else None


def read_mark(text: str) -> Mark | None:
    try:
        mark = _mark.decode(text[: LONGEST + 1])
    except (msgspec.DecodeError, RecursionError):
        return None
    return mark if _printable(mark) else None


def _printable(mark: Mark) -> bool:
    """What we write is; what is not could be executed by the terminal of the person who asks why."""
    texts = (mark.operator, mark.source, mark.reason, mark.step, mark.detail, mark.pod, mark.node, mark.value)
    return all(map(str.isprintable, texts))


def leaving(pod: Pod) -> Mark | None:
    """The mark that this very pod leaves. None also for one that was copied (a template hands its annotations to every
    pod of it), or that names a workload of another namespace."""
    text = pod.annotations.get(LEAVING)
    mark = read_mark(text) if text else None
    if mark is None or mark.pod_uid != pod.uid:
        return None
    workload = mark.before.get("workload", "").split("/")
    return mark if workload == [""] or workload[1:2] == [pod.namespace] else None


def write_marks(marks: Mapping[str, Mark]) -> str | None:
    """None removes the annotation."""
    return msgspec.json.encode(dict(sorted(marks.items()))).decode() if marks else None


def write_mark(mark: Mark) -> str:
    return msgspec.json.encode(mark).decode()
