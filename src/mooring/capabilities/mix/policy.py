"""What an administrator may set about Mix: what is moved and when, how fast, and which signals say that a node goes.
Numbers are seconds.
"""

from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated, Final

import msgspec

from mooring.capabilities.drain.signals import DETECTORS, Detector
from mooring.capabilities.mix.labels import (
    ENABLED,
    MODE,
    Managed,
    Management,
    Unmanaged,
    management_of,
    parse_share,
    read,
)
from mooring.capabilities.mix.targets import DEPLOYMENT_DEFAULT, MODES, Mode, Share, Target, default_target
from mooring.capabilities.mix.worth import Prices
from mooring.core.model.capacity import ANY, CapacityLabel, CapacityRules
from mooring.core.model.cluster import Toleration, Workload
from mooring.core.model.kinds import WORKLOADS

#: Less than the day after which failed attempts are forgotten.
_LONGEST_RETURN_S: Final = 12 * 3600.0


#: How much longer no pod is moved while no API server seems to reach the webhook.
_ALONE: Final = 20


#: A year stands for no limit; a shorter interval than a tenth of a second would be a busy loop.
_Interval = Annotated[float, msgspec.Meta(ge=0.1, le=31_536_000)]
_Span = Annotated[float, msgspec.Meta(ge=0, le=31_536_000)]


class RebalancePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: A workload is left alone until nothing about it has changed for this long.
    settle_s: _Span = 10.0
    #: A pod that must be on on-demand and finds no node for this long is handled by `on-shortage`.
    shortage_s: _Span = 60.0
    #: How long the pods of such a workload then only prefer on-demand.
    relaxed_s: _Span = 300.0
    #: A replacement that is not Ready by then has failed.
    ready_within_s: _Interval = 300.0
    #: After a failure the workload is left alone: this long, twice as long after the next one, and so on.
    pause_s: _Interval = 60.0
    #: The longest such pause.
    longest_pause_s: _Interval = 3600.0
    #: Whether replicas are moved off on-demand nodes that they do not need. It only saves money.
    to_spot: bool = True
    #: A pod that fell back to on-demand returns once spot has had room for this long. So long, too, a Pending
    #: replacement asks an autoscaler for an on-demand node.
    room_for_s: _Span = 600.0
    #: Percent of all replicas that return to spot within a minute; ten at least. Halved for each twentieth of the spot
    #: nodes lost within half an hour.
    return_share: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5
    #: How long a workload whose replicas came back from spot is left there; doubled each time.
    return_every_s: _Interval = 600.0
    #: Rebalancing moves under way in the whole cluster; beside them one each of as many namespaces that have none.
    #: Moves under a notice do not count.
    at_once: Annotated[int, msgspec.Meta(ge=1)] = 10
    #: How often a workload that waits for room looks again.
    look_again_s: _Interval = 30.0

    def pause(self, attempts: int, *, alone: bool = False) -> float:
        """How long to leave a workload alone after so many failures in a row. `alone`: the successor was created
        without our webhook, and so would the next one be."""
        first = self.pause_s * (_ALONE if alone else 1)
        return min(self.longest_pause_s, first * 2.0 ** max(0, attempts - 1))

    def return_after(self, attempts: int) -> float:
        """How long after the last return to spot the next may be, when so many in a row came back. It only saves
        money, so a workload whose pods keep coming back is soon left alone."""
        if not attempts:
            return 0.0
        return min(max(_LONGEST_RETURN_S, self.return_every_s), self.return_every_s * 2.0 ** min(attempts, 20))


class OnNotice(StrEnum):
    OFF = "off"
    #: Say what would be done.
    OBSERVE = "observe"
    ACT = "act"


class UnmanagedPods(StrEnum):
    """Pods of workloads that are not switched on, on an interrupted node."""

    LEAVE = "leave"
    #: For clusters without another handler: evicted one by one, before the machine goes.
    EVICT = "evict"


class ShortNotice(StrEnum):
    """A notice that leaves a replacement no time to start before the grace period has to begin."""

    #: Until the replacement is Ready or the machine goes.
    SERVE = "serve"
    #: The pod goes at once, with all the grace there is.
    GRACE = "grace"


class InterruptionPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: When a node gets a notice: `act`, `observe` (only say what would be done) or `off`.
    action: OnNotice = OnNotice.ACT
    #: What counts as a notice. All are read: the earliest deadline counts, and any deadline before a disruption
    #: without one.
    detectors: tuple[Detector, ...] = DETECTORS
    #: Pods of workloads that are not switched on, on an interrupted node: `leave` them, or `evict`.
    everybody: UnmanagedPods = UnmanagedPods.LEAVE
    #: Reserve before the deadline: the last call is deadline − grace period − this.
    margin_s: _Span = 5.0
    #: A notice too short for a replacement and the grace period: `serve` until the replacement is Ready or the machine
    #: goes, or go at once with what there is of the `grace` period.
    short_notice: ShortNotice = ShortNotice.SERVE
    #: What a replacement is expected to need from its creation to Ready.
    start_s: _Span = 20.0
    #: A spot node that is silent for this long counts as lost. Ten times as long while most nodes of its zone are
    #: silent; while all are, nothing is deleted for silence alone.
    lost_after_s: _Interval = 30.0
    #: How long moves wait for the cordons of the other interrupted nodes.
    cordons_within_s: _Span = 3.0


#: The sources of Mix's operators and marks.
SOURCES: Final = frozenset({"mix", "spot"})


class OnDisable(StrEnum):
    #: Pods that carry our affinity are recreated one by one, without it.
    RECREATE = "recreate"
    LEAVE = "leave"


class OnShortage(StrEnum):
    #: A pod that finds no on-demand room is recreated and prefers on-demand instead of requiring it.
    RELAX = "relax"
    WAIT = "wait"


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Workloads that are switched on without labels of their own."""

    name: str
    #: Names of namespaces; `*` stands for any characters. Not given: all.
    namespaces: tuple[str, ...] = ()
    #: Labels of the workload, all of them (`key=value`). Not given: any.
    labels: tuple[str, ...] = ()
    #: Deployment, StatefulSet, Rollout or CloneSet; "": all.
    kind: str = ""
    #: What they want: a mode, or `custom:2`, `custom:30%`. Not given: the default of their kind.
    mode: str = ""
    #: Only say what would get it (`mooring mix policies`).
    observe: bool = False

    def __post_init__(self) -> None:
        where = f"mix.policies {self.name!r}"
        if not self.namespaces and not self.labels:
            raise ValueError(f'{where} selects nothing; name namespaces or labels (namespaces: ["*"] for all)')
        wrong = [label for label in self.labels if not all(label.partition("=")[::2])]
        if wrong:
            raise ValueError(f"{where} has label {wrong[0]!r}; write key=value, e.g. tier=front")
        if self.kind not in {"", *WORKLOADS}:
            raise ValueError(f"{where} has kind {self.kind!r}; it must be one of {', '.join(WORKLOADS)}")
        if self.mode:
            _target(self.mode, f"{where} mode")

    def selects(self, workload: Workload) -> bool:
        if self.kind not in {"", workload.kind}:
            return False
        if self.namespaces and not any(fnmatchcase(workload.namespace, one) for one in self.namespaces):
            return False
        pairs = (label.partition("=")[::2] for label in self.labels)
        return all(workload.labels.get(key) == value for key, value in pairs)


class MixPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: How this cluster tells spot from on-demand. Those that nodes use are written into affinities.
    capacity: CapacityRules = CapacityRules()
    #: What spot pods tolerate. Not given: NoSchedule taints that say the same as the capacity labels in use.
    spot_tolerations: tuple[Toleration, ...] | None = None
    #: What a Deployment without a mode wants: `all-in-spot`, the design's, or e.g. `custom:1` for a floor of one.
    deployment_default: str = Mode.ALL_IN_SPOT.value
    #: Workloads that are switched on by their namespace or labels, the first policy that selects one. Labels
    #: `vacant.io/optimize-scheduling…` on the workload win.
    policies: tuple[Policy, ...] = ()
    #: Pods with Mooring's affinity when a workload is switched off: `recreate` one by one without it, or `leave`.
    on_disable: OnDisable = OnDisable.RECREATE
    #: A pod that finds no on-demand node: `relax` recreates it with a preference instead, `wait` leaves it.
    on_shortage: OnShortage = OnShortage.RELAX
    #: How long a slot is kept for a pod that was admitted and not yet seen: a create request takes 34 s at most.
    reservation_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 40.0
    #: A ReplicaSet that asks for more than it may have is retrying: reservations older than this are then dropped.
    reclaim_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 5.0
    #: What machines cost, for the saving that `mooring mix status` and the metrics show.
    prices: Prices = Prices()
    #: How fast replicas are moved, and what is done when a node is about to go.
    rebalance: RebalancePolicy = RebalancePolicy()
    interruption: InterruptionPolicy = InterruptionPolicy()

    def __post_init__(self) -> None:
        if not self.capacity.labels:
            raise ValueError("capacity.labels is empty; name at least one node label that tells spot from on-demand")
        first = self.capacity.labels[0]
        if not first.spot_values and not first.ondemand_values:
            raise ValueError(f"capacity.labels[0] ({first.key}) names neither spot_values nor ondemand_values")
        _target(self.deployment_default)
        names = [one.name for one in self.policies]
        if len(set(names)) < len(names):
            raise ValueError("two of mix.policies have the same name; `mooring mix policies` tells them apart by it")

    def policy_of(self, workload: Workload) -> Policy | None:
        """The first that selects it, whether or not its own labels win."""
        return next((one for one in self.policies if one.selects(workload)), None)

    def concerns(self, workload: Workload) -> bool:
        """It says something about Mix, or a policy does."""
        return ENABLED in workload.labels or bool(self.policies and self.policy_of(workload))

    def management_of(self, workload: Workload, left_out: frozenset[str] = frozenset()) -> Management:
        """What this workload wants: by its labels, else by the first policy that selects it."""
        found = management_of(workload, self.deployment_target, left_out)
        if not self.policies or ENABLED in workload.labels or not isinstance(found, Unmanaged):
            return found
        policy = self.policy_of(workload)
        if policy is None or policy.observe or workload.namespace in left_out:
            return found
        return self.given_by(policy, workload)

    def given_by(self, policy: Policy, workload: Workload) -> Management:
        """A mode in its own labels wins over the policy's."""
        if MODE in workload.labels:
            switched_on = {**workload.labels, ENABLED: "true"}
            found = read(workload.kind, switched_on, workload.annotations, self.deployment_target)
            return msgspec.structs.replace(found, policy=policy.name) if isinstance(found, Managed) else found
        target = _target(policy.mode) if policy.mode else default_target(workload.kind, self.deployment_target)
        return Managed(target, by_default=not policy.mode, policy=policy.name)

    @property
    def deployment_target(self) -> Target:
        return _target(self.deployment_default)

    def tolerations(self, schemes: Iterable[CapacityLabel] = ()) -> tuple[Toleration, ...]:
        """What a spot pod gets, where these labels are in use; without any, the first."""
        if self.spot_tolerations is not None:
            return self.spot_tolerations
        found: list[Toleration] = []
        for one in tuple(schemes) or self.capacity.labels[:1]:
            if ANY in one.spot_values:
                found.append(Toleration(one.key, "Exists", effect="NoSchedule"))
            else:
                found += [Toleration(one.key, "Equal", value, "NoSchedule") for value in one.spot_values]
        return tuple(found)


@cache
def _target(text: str, where: str = "deployment-default") -> Target:
    """`all-in-spot`, `custom:1`, `custom:30%`."""
    name, colon, figure = text.partition(":")
    share: Share | None = parse_share(figure) if colon else None
    if name not in MODES or (name == Mode.CUSTOM) != bool(colon) or (colon and share is None):
        raise ValueError(
            f"{where} is {text!r}; write one of {', '.join(m for m in MODES if m != Mode.CUSTOM)}, "
            "or custom with a figure, e.g. custom:1 or custom:30%"
        )
    return DEPLOYMENT_DEFAULT if name == Mode.ALL_IN_SPOT else Target(Mode(name), share)
