"""What a workload says about itself, read from its own labels (never from those of its pods).

    vacant.io/optimize-scheduling                        true | false, absent means false
    vacant.io/optimize-scheduling-mode                   all-in-on-demand | all-in-spot | majority-in-on-demand | custom
    vacant.io/optimize-scheduling-mode-custom-on-demand  3, or a percentage

`30%` can never be the value of a label: Kubernetes forbids the character. So a percentage is `30pct` in the label, or
`30%` in an annotation of the same name.

Nothing is guessed: a value that is not understood makes the workload unmanaged, with a message for its owner.
Admission refuses it with the same message.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from mooring.capabilities.drain import request
from mooring.capabilities.mix.targets import DEPLOYMENT_DEFAULT, MODES, Mode, Share, Target, default_target
from mooring.core.model.cluster import Pod, Workload
from mooring.core.model.kinds import WORKLOADS

# ── on workloads ──────────────────────────────────────────────────────────────────────────────────────────────────
ENABLED: Final = "vacant.io/optimize-scheduling"
MODE: Final = "vacant.io/optimize-scheduling-mode"
CUSTOM: Final = "vacant.io/optimize-scheduling-mode-custom-on-demand"
#: Annotation: `fast` asks for the quicker way of rebalancing (Deployments only).
REBALANCE: Final = "vacant.io/rebalance"
#: Besides our own namespace: without its pods no cluster comes up.
LEFT_OUT: Final = "kube-system"
# ── on pods ───────────────────────────────────────────────────────────────────────────────────────────────────────
#: Label: the class this pod was given, `on-demand` or `spot`.
AFFINITY: Final = request.AFFINITY
#: Annotations.
SLOT: Final = "vacant.io/slot"
RESERVATION: Final = "vacant.io/reservation"
#: Why its class could not be given: the pod's own rules contradict it.
CONFLICT: Final = "vacant.io/conflict"
#: `true`: on-demand was full, so this pod prefers it instead of requiring it.
RELAXED: Final = "vacant.io/relaxed"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

#: Characters. A label has 63 at most; an annotation, or a review that no API server checked, any number.
LONGEST: Final = 256
_LONGEST_SLOT: Final = 5
_COUNT: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_PERCENT: Final = re.compile(r"(0|[1-9][0-9]?|100)(%|pct)")


class Managed(msgspec.Struct, frozen=True, gc=False):
    """Switched on, and everything it says is understood."""

    target: Target
    #: No mode was named: it is the default of its kind.
    by_default: bool = False
    #: Of `mix.policies`; "": its own labels say so.
    policy: str = ""


class Unmanaged(msgspec.Struct, frozen=True, gc=False):
    """Not switched on: not touched at all."""


class Misconfigured(msgspec.Struct, frozen=True, gc=False):
    """Something it says is not understood. Not touched either, and its owner is told."""

    problems: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.problems)


Management = Managed | Unmanaged | Misconfigured
_UNMANAGED: Final = Unmanaged()


def management_of(
    workload: Workload, deployment_default: Target = DEPLOYMENT_DEFAULT, left_out: frozenset[str] = frozenset()
) -> Management:
    """What this workload wants of Mix. `left_out`: namespaces whose pods are created without our webhook."""
    labels = workload.labels
    if ENABLED not in labels and MODE not in labels and CUSTOM not in labels:
        return _UNMANAGED
    management = read(workload.kind, labels, workload.annotations, deployment_default)
    if workload.namespace in left_out and isinstance(management, Managed):
        return Misconfigured((f"namespace {workload.namespace} is left out by the webhook, so {ENABLED} does nothing",))
    return management


def read(
    kind: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    deployment_default: Target = DEPLOYMENT_DEFAULT,
) -> Management:
    """Everything present is checked, even when it is switched off: a mistake should not show first on the day it is
    on."""
    enabled, mode = labels.get(ENABLED, "false"), labels.get(MODE)
    shares = (labels.get(CUSTOM), annotations.get(CUSTOM))
    # Before anything is remembered or quoted.
    if len(enabled) + len(mode or "") + len(shares[0] or "") + len(shares[1] or "") > LONGEST:
        for key, value in ((ENABLED, enabled), (MODE, mode), (CUSTOM, shares[0]), (CUSTOM, shares[1])):
            if value is not None and len(value) > LONGEST:
                return Misconfigured((f"{key} has {len(value)} characters; no value of it has more than {LONGEST}",))
    return _read(kind, enabled, mode, shares, deployment_default)


@lru_cache(maxsize=1024)
def _read(
    kind: str, enabled: str, mode: str | None, shares: tuple[str | None, str | None], deployment_default: Target
) -> Management:
    """Asked at every admission and every look; few different answers make up a whole cluster."""
    problems: list[str] = []
    if enabled not in {"true", "false"}:
        problems.append(f"label {ENABLED} is {enabled!r}; it must be exactly true or false")
    if mode is not None and mode not in MODES:
        problems.append(f"label {MODE} is {mode!r}; it must be one of {', '.join(MODES)}")
    share = _share_of(shares, problems)
    if mode == Mode.CUSTOM and shares == (None, None):
        problems.append(
            f"{MODE} is custom, which needs label {CUSTOM}: a count such as 3, or a percentage such as 30pct"
        )
    if problems:
        return Misconfigured(tuple(problems))
    if enabled != "true":
        return _UNMANAGED
    if mode is None:
        return Managed(default_target(kind, deployment_default), by_default=True)
    return Managed(Target(Mode(mode), share if mode == Mode.CUSTOM else None))


def _share_of(shares: tuple[str | None, str | None], problems: list[str]) -> Share | None:
    found: list[Share] = []
    for where, value in zip(("label", "annotation"), shares, strict=True):
        if value is None:
            continue
        share = parse_share(value)
        if share is None:
            problems.append(
                f"{where} {CUSTOM} is {value!r}; it must be a count (0, 1, 2 …) or a percentage from 0 to 100, "
                f"written {'30pct' if where == 'label' else '30%'}"
            )
        else:
            found.append(share)
    if len(found) == 2 and found[0] != found[1]:
        problems.append(f"{CUSTOM} is {found[0]} as a label and {found[1]} as an annotation; keep one of them")
    return found[0] if found else None


def target_asked(kind: str, mode: str | None, custom: str | None) -> Target | str:
    """What the flags of `mooring mix target` ask for; a sentence: what is wrong with them."""
    if kind not in WORKLOADS:
        return f"--kind {kind}: it must be one of {', '.join(WORKLOADS)}"
    if mode is not None and mode not in MODES:
        return f"--mode {mode}: it must be one of {', '.join(MODES)}"
    if mode == Mode.CUSTOM and custom is None:
        return "--mode custom needs --custom: a count such as 3, or a percentage such as 30%"
    if mode != Mode.CUSTOM and custom is not None:
        return f"--custom {custom} goes with --mode custom only; the mode is {mode or 'the default'}"
    share = parse_share(custom) if custom is not None else None
    if custom is not None and share is None:
        return f"--custom {custom}: it must be a count (0, 1, 2 …) or a percentage, 0% to 100%"
    return default_target(kind) if mode is None else Target(Mode(mode), share)


def parse_share(text: str) -> Share | None:
    """`3`, `30%` or `30pct`. None: neither a count nor a percentage."""
    if _COUNT.fullmatch(text):
        return Share(int(text))
    percent = _PERCENT.fullmatch(text)
    return Share(int(percent[1]), percent=True) if percent else None


def slot_of(pod: Pod) -> int | None:
    """The slot written on a pod, or None: it was never given one, or the value is no slot."""
    text = pod.annotations.get(SLOT)
    return None if text is None or len(text) > _LONGEST_SLOT else _slot(text)


@lru_cache(maxsize=4096)
def _slot(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
