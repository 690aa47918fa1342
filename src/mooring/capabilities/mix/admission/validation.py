"""Errors and warnings for the user who creates or changes a workload.

Refused, with every problem at once and what would be right, is only what the person has just written. A workload that
was wrong before (it was created unchecked) may still be changed elsewhere, scaled and deleted: it gets a
warning. Warnings stay under 120 characters where they can, since kubectl shows them on one line.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from mooring.capabilities.drain.request import RECREATE
from mooring.capabilities.mix.admission.affinity import (
    AffinityConflict,
    PodRules,
    Written,
    require,
    stays_off_spot,
    written,
)
from mooring.capabilities.mix.labels import CUSTOM, ENABLED, MODE, REBALANCE, Managed, Misconfigured, read
from mooring.capabilities.mix.targets import DEPLOYMENT_DEFAULT, Mode, Target
from mooring.core.model.capacity import CapacityRules
from mooring.core.model.cluster import NO_LABELS
from mooring.core.model.kinds import POD_OWNERS
from mooring.core.model.spelling import counted

_KNOWN: Final = (ENABLED, MODE, CUSTOM)


NO_NARROWING: Final[Mapping[str, tuple[int, int]]] = {}
#: Where nobody has seen a node yet.
DESIGN: Final = written(CapacityRules())


class WorkloadDraft(msgspec.Struct, frozen=True):
    """The part of a workload that Mix validates."""

    kind: str
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    replicas: int = 1
    template_labels: Mapping[str, str] = NO_LABELS
    #: Where its pods may go, by the template's own words.
    rules: PodRules = PodRules()
    strategy: str = ""

    def says(self) -> dict[str, str | None]:
        """What it says to Mix, to tell whether a change is about us."""
        return {f"label {key}": self.labels.get(key) for key in _KNOWN} | {CUSTOM: self.annotations.get(CUSTOM)}


class Judgement(msgspec.Struct, frozen=True):
    #: Empty: allowed.
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def judge(
    draft: WorkloadDraft,
    before: WorkloadDraft | None = None,
    deployment_default: Target = DEPLOYMENT_DEFAULT,
    classes: Written = DESIGN,
    narrow: Mapping[str, tuple[int, int]] = NO_NARROWING,
) -> Judgement:
    """`before`: the workload as it stands, when this is a change. `narrow`: topology key → how many domains on-demand
    nodes have, of how many, where those are fewer."""
    management = read(draft.kind, draft.labels, draft.annotations, deployment_default)
    warnings = list(_misplaced(draft))
    if isinstance(management, Misconfigured):
        if before is not None and before.says() == draft.says():
            return Judgement(warnings=(*(f"not managed: {problem}" for problem in management.problems), *warnings))
        return Judgement(problems=management.problems)
    mode = draft.labels.get(MODE)
    if mode != Mode.CUSTOM and (CUSTOM in draft.labels or CUSTOM in draft.annotations):
        warnings.append(f"{CUSTOM} is ignored: {MODE} is {mode or 'not set'}, not custom")
    if isinstance(management, Managed):
        warnings += _about(draft, management)
        warnings += _contradictions(draft, management.target, classes)
        warnings += _shrunk_spread(draft, management.target, narrow)
    return Judgement(warnings=tuple(warnings))


def _about(draft: WorkloadDraft, management: Managed) -> list[str]:
    warnings = []
    target = management.target
    if draft.replicas > 0 and target.on_demand(draft.replicas) == 0:
        by_default = f", the default of a {draft.kind}" if management.by_default else ""
        warnings.append(
            f"{target}{by_default}: guaranteed on-demand floor is 0 replicas; losing all spot nodes can stop it"
        )
    if target.share is not None and not target.share.percent and target.share.number > draft.replicas > 0:
        warnings.append(f"{CUSTOM} {target.share} is more than the {draft.replicas} replicas: all go to on-demand")
    rebalance = draft.annotations.get(REBALANCE)
    if rebalance is not None and rebalance != "fast":
        warnings.append(f"annotation {REBALANCE} is {rebalance!r} and ignored; the only value is fast")
    elif rebalance is not None and draft.kind in POD_OWNERS:
        warnings.append(f"annotation {REBALANCE} is ignored on a {draft.kind}: its pods move one by one")
    elif rebalance is not None and draft.strategy == RECREATE:
        warnings.append(f"annotation {REBALANCE} is ignored with strategy {RECREATE}: no two pods run side by side")
    return warnings


def _contradictions(draft: WorkloadDraft, target: Target, classes: Written) -> list[str]:
    """A template whose own node rules leave no choice. It is allowed: the user's rules win, pod by pod."""
    floor = target.on_demand(draft.replicas)
    if floor:
        bound = require(draft.rules, classes)
        if isinstance(bound, AffinityConflict):
            why = bound.why.partition(",")[0].replace("its ", "the template's ", 1)
            return [
                f"{target} wants {floor} of {draft.replicas} replicas on on-demand, but {why}: they stay as they are"
            ]
    if floor < draft.replicas and stays_off_spot(draft.rules, classes):
        spot = counted(draft.replicas - floor, "replica")
        return [f"{target} wants {spot} on spot, but the template's own node rules exclude spot nodes: they stay off"]
    return []


def _shrunk_spread(draft: WorkloadDraft, target: Target, narrow: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """A spread counts only the domains that a pod may go to: those of on-demand nodes, for the pods of the floor."""
    floor = target.on_demand(draft.replicas)
    for one in draft.rules.topology_spread_constraints or () if floor > 1 else ():
        key = one.get("topologyKey", "")
        if key in narrow and one.get("nodeAffinityPolicy") != "Ignore":
            few, all_ = narrow[key]
            words = f"on-demand nodes are in {few} of {all_} domains"
            yield f"spread over {key}: {words}, {floor} replicas spread over those"


def _misplaced(draft: WorkloadDraft) -> list[str]:
    """Settings in places where they are not read."""
    warnings = [
        f"annotation {key} is ignored: it is read from the labels of the {draft.kind}"
        for key in (ENABLED, MODE)
        if key in draft.annotations
    ]
    warnings += [
        f"label {key} in the pod template is ignored: put it on the {draft.kind} itself"
        for key in _KNOWN
        if key in draft.template_labels and key not in draft.labels
    ]
    warnings += [
        f"label {key} is not known; {ENABLED}, {MODE} and {CUSTOM.removeprefix('vacant.io/')} are"
        for key in sorted(draft.labels)
        if key.startswith(ENABLED) and key not in _KNOWN
    ]
    return warnings
