"""What was begun in a PD that outlives its TidbCluster, noted in a ConfigMap beside Mooring.

A mark goes with the cluster that it stands on. Where the PD is another cluster's (`spec.cluster`, `pdAddresses`), a
cluster that is deleted while nobody leads would leave its evict-leader scheduler, and nobody would know whose it is
(E5). A finalizer would keep the mark, and the cluster with it until a replica runs: nothing may wait for that.

The note is written before the scheduler or the lock is, and dropped once the mark has gone. Of a cluster that is gone,
what PD still lists is ended through another TidbCluster on the same PD.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from mooring.capabilities.handoff.facts import lock_id, store_target
from mooring.capabilities.handoff.operators import LOCK_ALONE, eviction_operator, marks_of, put_mark, tikv_payload
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.requests import DELETE_POD
from mooring.core.model.cluster import ConfigMap, Key
from mooring.core.model.decision import Evaluation, NextStep, OperatorRecord, PdRefresh, Verdict
from mooring.core.model.descriptor import Leftover, Marked
from mooring.core.model.instructions import (
    AddEvictLeader,
    Create,
    HarmlessWrite,
    HoldPdLock,
    Patch,
    ReleasePdLock,
    RemoveEvictLeader,
)
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import GAVE_UP, Mark
from mooring.core.model.operator import Operator, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdView, TidbCluster
from mooring.core.queue import QueueRead
from mooring.core.world.members import other_on
from mooring.core.world.read import WorldRead

NAME: Final = "mooring-handoff-memory"
#: A note that nobody here can act on (no TidbCluster uses that PD any more) is told for so long.
TOLD_S: Final = 24 * 3600.0


class Note(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Of one pod: what is begun for it in PD."""

    cluster: str
    #: Of the TidbCluster: another one of the same name is another cluster.
    uid: str
    pod_uid: str
    store_id: int
    #: PD's cluster id.
    pd: str
    #: Mooring adds a scheduler; else it takes the lock alone, beside another client's scheduler.
    evicts: bool
    at: float


_decode: Final = msgspec.json.Decoder(Note).decode


def notes_of(memory: ConfigMap | None) -> Iterator[tuple[Key, Note]]:
    """By pod. Only Mooring writes here; what cannot be read was written by a person, and is left alone."""
    for name, text in sorted(memory.data.items() if memory is not None else ()):
        try:
            yield Key(*name.split(".", 1)), _decode(text)
        except (msgspec.DecodeError, RecursionError, TypeError):
            continue


def _write(world: WorldRead, where: Key, pod: Key, note: Note | None, why: str) -> HarmlessWrite:
    memory, data = world.config_map(where), {f"{pod.namespace}.{pod.name}": _text(note)}
    if memory is not None:
        return Patch(kind=Kind.CONFIG_MAP, key=where, uid=memory.uid, patch={"data": data}, why=why)
    metadata = {"namespace": where.namespace, "name": where.name, "labels": {"app.kubernetes.io/managed-by": "mooring"}}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    return Create(kind=Kind.CONFIG_MAP, object=obj, why=why)


def _text(note: Note | None) -> str | None:
    return None if note is None else msgspec.json.encode(note).decode()


def noted_first(step: NextStep, running: OperatorRecord, world: WorldRead, where: Key, now: float) -> NextStep:
    """What begins in a PD that outlives the cluster is written down before; and dropped when a hand-over ends whose
    cluster is gone."""
    begins = [one for one in step.instructions if isinstance(one, AddEvictLeader | HoldPdLock)]
    payload = tikv_payload(running.operator)
    pod = Key(*payload.pod.split("/"))
    tc = world.tidb_cluster(Key(pod.namespace, payload.cluster.partition("/")[2]))
    known = dict(notes_of(world.config_map(where))).get(pod) if begins or step.end is not None else None
    if step.end is not None and tc is None and known is not None and known.pod_uid == payload.uid:
        return NextStep(step=step.step, instructions=(_write(world, where, pod, None, step.end.detail),))
    if not begins or tc is None or not tc.outlived_by_pd:
        return step
    evicts = any(isinstance(one, AddEvictLeader) for one in begins)
    # The PD of an operator that was asked before its PD was known is named by the cluster.
    view = world.pd(tc.key)
    note = Note(
        cluster=tc.name,
        uid=tc.uid,
        pod_uid=payload.uid,
        store_id=payload.store_id,
        pd=str(view.cluster_id or "") if view is not None else "",
        evicts=evicts or (known is not None and known.pod_uid == payload.uid and known.evicts),
        at=now,
    )
    if known is not None and msgspec.structs.replace(known, at=now) == note:
        return step
    write = _write(world, where, pod, note, "notes what begins in a PD that outlives the cluster")
    return NextStep(step=running.step, instructions=(write,))


def of_cluster(tc: TidbCluster, world: WorldRead, queue: QueueRead, where: Key, now: float) -> Iterator[HarmlessWrite]:
    """Notes whose mark has gone are dropped. A cluster that was made anew under the same name gets the mark of the one
    before: what it says is swept as any mark without an operator."""
    marks = marks_of(tc)
    for pod, note in notes_of(world.config_map(where)):
        if marks is None or (pod.namespace, note.cluster) != (tc.namespace, tc.name):
            continue
        mark = marks.get(pod.name)
        under_way = (mark is not None and mark.step != GAVE_UP) or queue.holder(store_target(tc.key, note.store_id))
        if note.uid == tc.uid and not under_way:
            yield _write(world, where, pod, None, "nothing of it is begun in PD any more")
        elif note.uid != tc.uid and mark is None and not under_way:
            yield put_mark(tc, marks, pod.name, _mark(note, now), "of the cluster of that name before")
        elif note.uid != tc.uid and mark is not None:
            renamed = msgspec.structs.replace(note, uid=tc.uid)
            yield _write(world, where, pod, renamed, "the mark is on the new cluster")


def _mark(note: Note, now: float) -> Mark:
    return Mark(
        operator="",
        source="handoff",
        reason=Reason.SWEPT,
        step=StepKind.EVICT_LEADERS,
        since=now,
        detail="begun for the cluster of this name before",
        pod_uid=note.pod_uid,
        store_id=note.store_id,
        value=DELETE_POD,
        pd_id=note.pd,
        before={} if note.evicts else {"evicting": "true"},
    )


def of_gone(
    cluster: Key, world: WorldRead, queue: QueueRead, policy: HandoffPolicy, where: Key, now: float
) -> Evaluation:
    """The TidbCluster is gone: what it has left in PD is ended, and then its note is dropped."""
    notes = [(pod, n) for pod, n in notes_of(world.config_map(where)) if Key(pod.namespace, n.cluster) == cluster]
    proposals: list[Operator] = []
    dropped: list[HarmlessWrite] = []
    verdicts: list[Verdict] = []
    refreshes: list[PdRefresh] = []
    for pod, note in notes:
        via = other_on(world, note.pd)
        if via is None:
            if now - note.at > TOLD_S:
                dropped.append(_write(world, where, pod, None, "no TidbCluster here has used that PD for long"))
            verdicts.append(_unknown_pd(pod, note))
            continue
        view = None if world.pd_lost(via) else world.pd(via)
        refreshes.append(PdRefresh(via, now if view is None else (world.pd_observed_at(via) or now) + policy.recheck_s))
        if view is None or view.evicting is None or queue.holder(store_target(cluster, note.store_id)) is not None:
            continue
        if _left(pod, note, view):
            detail = f"{cluster} is gone, and what was begun for its store {note.store_id} stands in the PD of {via}"
            what = DELETE_POD if note.evicts else LOCK_ALONE
            args = cluster, pod.name, note.pod_uid, note.store_id, what, detail, note.pd
            proposals.append(eviction_operator(*args, reason=Reason.SWEPT))
        else:
            dropped.append(_write(world, where, pod, None, "nothing of it is left in PD"))
    return Evaluation(
        proposals=tuple(proposals),
        instructions=tuple(dropped),
        refreshes=tuple(refreshes),
        verdict=verdicts[0] if verdicts else None,
        verdicts=tuple(verdicts),
        again_at=now + policy.recheck_s if notes else None,
    )


def _left(pod: Key, note: Note, view: PdView) -> bool:
    evicted = note.evicts and note.store_id in (view.evicting or ()) and note.store_id in {s.id for s in view.stores}
    return evicted or (view.lock is not None and view.lock.id == lock_id(pod, note.pod_uid))


def _unknown_pd(pod: Key, note: Note) -> Verdict:
    detail = f"TidbCluster {pod.namespace}/{note.cluster} is gone, and none here uses its PD ({note.pd}) any more"
    return Verdict(
        State.WAITING,
        Reason.CLUSTER_GONE,
        detail,
        f"where PD lists it: pd-ctl scheduler remove evict-leader-scheduler-{note.store_id}",
    )


def clusters_of(*memories: ConfigMap | None) -> set[str]:
    return {f"{pod.namespace}/{note.cluster}" for memory in memories for pod, note in notes_of(memory)}


def leftovers(marked: Marked) -> Iterator[Leftover]:
    """For a cleanup: what clusters that are gone have left in the PD of another."""
    there = {tc.key: tc for tc in marked.clusters}
    for memory in (one for one in marked.memories if one.name == NAME):
        for pod, note in notes_of(memory):
            cluster = Key(pod.namespace, note.cluster)
            via = min((key for key, tc in there.items() if str(tc.pd_id or "") == note.pd), default=None)
            if cluster in there or via is None:
                continue
            words = f"PD of {via}: let store {note.store_id} ({pod.name}, whose TidbCluster is gone) have leaders again"
            free = ReleasePdLock(cluster=cluster, lock_id=lock_id(pod, note.pod_uid), via=via, why="cleanup")
            remove = RemoveEvictLeader(cluster=cluster, store_id=note.store_id, via=via, why="cleanup")
            yield Leftover(words, (free, remove) if note.evicts else (free,))
