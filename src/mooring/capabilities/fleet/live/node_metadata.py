"""Labels, annotations and taints of the design on a live Node: ours only, all others stay.

Ours are the keys of the design's tables, and what the template itself brought, which is written down on the node
(`mooring.dev/fleet`) so that it can be taken away again. A kubelet may write that annotation on its own Node, and would
have us strip labels and taints that it may not touch itself; so the record counts only with its seal, a label under
`node-restriction.kubernetes.io/`, which no kubelet may set. `NoExecute` cuts pods off: the state taint is set only once
it is stored (the retire operator has released it), and it, like one that a template brings, waits until no pod is there
that does not tolerate it, and passes through the queue: `Upkeep.cut_off` is what an operator sets, by a live list.
Where machines retire at once (`immediate`) the state taint does not wait.
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec

from mooring.capabilities.fleet.live.release import SOURCE
from mooring.capabilities.fleet.planner import keys
from mooring.core.model import subjects
from mooring.core.model.cluster import NO_EXECUTE, Node, Pod, Taint
from mooring.core.model.decision import Verdict
from mooring.core.model.instructions import EditTaints, HarmlessWrite, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator, Payload, Step, StepKind
from mooring.core.model.reasons import Reason, State

TAINT_NODE: Final = "taint-node"
APPLIED: Final = "mooring.dev/fleet"
SEAL: Final = "node-restriction.kubernetes.io/mooring-fleet"
_OUR_LABELS: Final = frozenset(
    {
        keys.RACK,
        keys.INDEX_IN_RACK,
        keys.ROLE,
        keys.WEIGHT,
        keys.REGISTER_MONTH,
        keys.RETIRE_MONTH,
        keys.MASTER_ROLE,
        keys.CONTROL_PLANE_ROLE,
    }
)
_OUR_ANNOTATIONS: Final = frozenset({keys.SERIAL, keys.REGISTER_DATE, keys.RETIRE_DATE})


class Upkeep(msgspec.Struct, frozen=True):
    """What brings a Node nearer to how cluster.yml has it: the next write, one at a time; `NoExecute` taints, which an
    operator sets; and what is held back."""

    write: HarmlessWrite | None = None
    cut_off: tuple[Taint, ...] = ()
    #: `CutOff.may_cut_off`.
    may_cut_off: tuple[str, ...] | None = ()
    held: Verdict | None = None


class AppliedKeys(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the template brought to this node, beyond the design's own keys."""

    labels: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}
    #: "key:effect"
    taints: tuple[str, ...] = ()


def seal(name: str, record: str) -> str:
    return sha256(f"{name}\n{record}".encode()).hexdigest()[:40]


def applied_to(node: Node) -> AppliedKeys:
    """Nothing, where the record is not as we have sealed it."""
    record = node.annotations.get(APPLIED) or ""
    if not record or node.labels.get(SEAL) != seal(node.name, record):
        return AppliedKeys()
    try:
        return msgspec.json.decode(record, type=AppliedKeys)
    except (msgspec.DecodeError, RecursionError):
        return AppliedKeys()


def bring_up_to_date(
    node: Node, wanted: Mapping[str, Any], pods: Callable[[], Iterable[Pod]], *, immediate: bool = False
) -> Upkeep:
    labels: Mapping[str, str] = wanted["labels"]
    annotations: Mapping[str, str] = wanted["annotations"]
    before = applied_to(node)
    taints = tuple(Taint(t["key"], t["effect"], t.get("value") or "") for t in wanted["taints"])
    own_taints = tuple(t for t in taints if t.key != keys.STATE_TAINT)
    after = AppliedKeys(
        tuple(sorted(k for k in labels if not _our_label(k))),
        {k: v for k, v in sorted(annotations.items()) if k not in _OUR_ANNOTATIONS},
        tuple(f"{t.key}:{t.effect}" for t in own_taints),
    )
    change = _metadata(node, labels, annotations, before, after)
    if change:
        why = "writes the machine's labels and annotations"
        return Upkeep(Patch(kind=Kind.NODE, key=node.key, uid=node.uid, patch={"metadata": change}, why=why))
    return _taints(node, taints, before, tuple(pods()), immediate=immediate)


def _our_label(key: str) -> bool:
    return key in _OUR_LABELS or key.startswith(keys.MACHINE_LABEL_PREFIX)


def _metadata(
    node: Node,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    before: AppliedKeys,
    after: AppliedKeys,
) -> dict[str, Any]:
    put: dict[str, str | None] = {k: v for k, v in labels.items() if node.labels.get(k) != v}
    put |= {k: None for k in node.labels if k not in labels and k != SEAL and (_our_label(k) or k in before.labels)}
    note: dict[str, str | None] = {
        k: annotations[k] for k in _OUR_ANNOTATIONS if k in annotations and node.annotations.get(k) != annotations[k]
    }
    # Annotations of other kinds are not in our picture of the node: what we wrote last stands for what is there.
    note |= {k: v for k, v in after.annotations.items() if before.annotations.get(k) != v}
    note |= {k: None for k in before.annotations if k not in after.annotations}
    # Taints that are to go are forgotten only once they are gone.
    known = tuple(dict.fromkeys((*after.taints, *(t for t in before.taints if _carried(node, t)))))
    record = msgspec.structs.replace(after, taints=known)
    text = msgspec.json.encode(record).decode() if record != AppliedKeys() else ""
    if text != node.annotations.get(APPLIED, ""):
        note[APPLIED] = text or None
    sealed = seal(node.name, text) if text else ""
    if sealed != node.labels.get(SEAL, ""):
        put[SEAL] = sealed or None
    change: dict[str, Any] = {}
    if put:
        change["labels"] = put
    if note:
        change["annotations"] = note
    return change


def _carried(node: Node, taint: str) -> bool:
    return any(f"{t.key}:{t.effect}" == taint for t in node.taints)


def _taints(
    node: Node, wanted: tuple[Taint, ...], before: AppliedKeys, pods: tuple[Pod, ...], *, immediate: bool
) -> Upkeep:
    have = set(node.taints)
    missing = [t for t in wanted if t not in have]
    # Set when no pod on the node would be cut off; also of the state: since it was stored, pods may have come back.
    at_once = immediate or _carried(node, f"{keys.STATE_TAINT}:{NO_EXECUTE}")
    waits = [t for t in missing if t.effect == NO_EXECUTE and not (at_once and t.key == keys.STATE_TAINT)]
    cut = {t: _cut_off(t, pods) for t in waits}
    add = tuple(t for t in missing if t.effect != NO_EXECUTE)
    cut_off = tuple(t for t in missing if t.effect == NO_EXECUTE and not cut.get(t))
    coming = {t.key for t in missing if t.effect == NO_EXECUTE}  # one in its place stays until it is there
    places = {(t.key, t.effect) for t in wanted}
    remove = tuple(
        t
        for t in node.taints
        if (t.key, t.effect) not in places
        and t.key not in coming
        and (t.key == keys.STATE_TAINT or f"{t.key}:{t.effect}" in before.taints)
    )
    held = next(((t, names) for t, names in cut.items() if names), None)
    verdict = None
    if held is not None:
        taint, names = held
        verdict = Verdict(
            State.BLOCKED,
            Reason.NO_EXECUTE,
            f"{node.name}: the taint {taint.key}:NoExecute would cut off {', '.join(names[:5])}",
            f"drain {node.name}, or let its pods tolerate the taint",
        )
    why = "writes the machine's taints"
    edit = EditTaints(node=node.name, uid=node.uid, add=add, remove=remove, why=why) if add or remove else None
    return Upkeep(edit, cut_off, () if any(t in waits for t in cut_off) else None, verdict)


def _cut_off(taint: Taint, pods: tuple[Pod, ...]) -> list[str]:
    stays = Kind.DAEMON_SET if taint.key == keys.STATE_TAINT else None
    return sorted(
        p.name
        for p in pods
        if p.active
        and not p.is_mirror
        and not (p.owner is not None and p.owner.kind == stays)
        and not any(t.tolerates(taint) for t in p.shape.tolerations)
    )


def taint_operator(node: Node, taints: Iterable[Taint]) -> Operator:
    """Sets `NoExecute` taints. It takes no room: it ends no pod, as a live list has to show."""
    words = ", ".join(f"{t.key}={t.value}:{t.effect}" if t.value else f"{t.key}:{t.effect}" for t in taints)
    return Operator(
        id="",
        source=SOURCE,
        kind=TAINT_NODE,
        subject=subjects.node(node.name),
        steps=(Step(kind=StepKind.TAINT),),
        timeout_s=60.0,
        detail=f"the stored cluster has {words} on it",
        payload=Payload(node=node.name),
    )
