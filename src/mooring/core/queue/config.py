"""The five settings of the design, and three that are off unless asked for.

`None` is unlimited, 0 is paused (for a scheduler: disabled), a negative number is an error: no magic numbers.
Limits take effect at once, for operators that wait too; step costs hold for operators submitted from then on, since
a cost is frozen at admission.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from mooring.core.model.operator import StepKind
from mooring.core.model.windows import Window
from mooring.core.queue import targets

#: kind → role → cost. Roles: `from`, `to`, `leader`, `peer` (every store with a peer of the region).
StepCosts = Mapping[StepKind, Mapping[str, int]]

#: The design's values where it gives one (TransferLeader, RemovePeer, AddLearner); the others by what they move.
DEFAULT_STEP_COST: Final[StepCosts] = MappingProxyType(
    {
        StepKind.TRANSFER_LEADER: {"from": 1, "to": 1},
        StepKind.ADD_PEER: {"leader": 5, "to": 8},
        StepKind.ADD_LEARNER: {"leader": 5, "to": 8},
        StepKind.PROMOTE_LEARNER: {"to": 1},
        StepKind.REMOVE_PEER: {"from": 2},
        StepKind.MERGE_REGION: {"peer": 2, "leader": 1},
        StepKind.SPLIT_REGION: {"peer": 1, "leader": 1},
    }
)

#: Which roles a step can name at all.
ROLES: Final[Mapping[StepKind, frozenset[str]]] = MappingProxyType(
    {
        StepKind.TRANSFER_LEADER: frozenset({"from", "to", "leader", "peer"}),
        StepKind.ADD_PEER: frozenset({"to", "leader", "peer"}),
        StepKind.ADD_LEARNER: frozenset({"to", "leader", "peer"}),
        StepKind.PROMOTE_LEARNER: frozenset({"to", "leader", "peer"}),
        StepKind.REMOVE_PEER: frozenset({"from", "leader", "peer"}),
        StepKind.MERGE_REGION: frozenset({"leader", "peer"}),
        StepKind.SPLIT_REGION: frozenset({"leader", "peer"}),
    }
)

#: Above this a number is no limit: `null` says unlimited.
_LARGEST_NUMBER: Final = 10**12

#: The design's schedulers; every other source is one of ours.
REGION_SCHEDULERS: Final = ("balance-leader", "balance-region", "replica", "merge", "split", "hot")
#: How many operators of any other source may wait live, unless `SchedulerMaxWaitingOperator` names it.
OTHERS_WAITING: Final = 10


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    max_schedule_cost: int | None = 20
    store_max_schedule_cost: Mapping[str, int | None] = MappingProxyType({})
    #: Overrides of `DEFAULT_STEP_COST`, by kind and role.
    operator_step_cost: StepCosts = MappingProxyType({})
    max_waiting_operator: int | None = 3
    scheduler_max_waiting_operator: Mapping[str, int | None] = MappingProxyType({})
    #: Live, the caps of sources that are no region schedulers, where not `OTHERS_WAITING`: `MaxWaitingOperator` is the
    #: design's and caps its schedulers alone. None, in a replay: there every source is a scheduler.
    source_caps: Mapping[str, int | None] | None = None
    #: Kind of target → its limit, as the capabilities say; an unknown kind has 1.
    target_limits: Mapping[str, int | None] = MappingProxyType({})
    #: When housekeeping may be done; empty: always.
    windows: tuple[Window, ...] = ()
    #: Beyond the design, off by default: cost stays charged so long after a success, which bounds the rate too.
    cooldown_s: float = 0.0
    #: Beyond the design, off by default: a strictly higher priority replaces what holds its subject.
    replacement: bool = False

    def limit(self, target: str) -> int | None:
        """The limit of a target as configured; stores by the design's two settings, others by the table of kinds."""
        if targets.is_store(target):
            if self.store_max_schedule_cost:
                for name in targets.store_names(target):
                    if name in self.store_max_schedule_cost:
                        return self.store_max_schedule_cost[name]
            return self.max_schedule_cost
        return self.target_limits.get(targets.kind_of(target), targets.UNKNOWN_KIND_LIMIT)

    def cap(self, source: str) -> int | None:
        """How many operators of a source may wait at once."""
        if source in self.scheduler_max_waiting_operator:
            return self.scheduler_max_waiting_operator[source]
        if self.source_caps is None or source in REGION_SCHEDULERS:
            return self.max_waiting_operator
        return self.source_caps.get(source, OTHERS_WAITING)

    def step_cost(self, kind: StepKind) -> Mapping[str, int]:
        """Role → cost of one step; a role that the override leaves out keeps its default."""
        defaults = DEFAULT_STEP_COST[kind]
        override = self.operator_step_cost.get(kind)
        return {**defaults, **override} if override else defaults


def live_settings() -> Settings:
    """The defaults of a running Mooring: 3 for the region schedulers, 10 for the others."""
    return Settings(source_caps={})


def with_targets(settings: Settings, limits: Mapping[str, tuple[int | None, str]], uncapped: Iterable[str]) -> Settings:
    """Add the kinds of targets and the uncapped sources of the capabilities."""
    return msgspec.structs.replace(
        settings,
        target_limits={**settings.target_limits, **{kind: limit for kind, (limit, _) in limits.items()}},
        source_caps=None if settings.source_caps is None else {**settings.source_caps, **dict.fromkeys(uncapped)},
    )


KEYS: Final = (
    "MaxScheduleCost",
    "StoreMaxScheduleCost",
    "OperatorStepCost",
    "MaxWaitingOperator",
    "SchedulerMaxWaitingOperator",
    "CooldownSeconds",
    "ReplaceLowerPriority",
)


class QueueConfigError(ValueError):
    """A setting that cannot be; the message names it and says what would be right."""


def parse(raw: Any, base: Settings | None = None) -> Settings:
    """Read the settings from plain JSON values. Keys that are named replace those of `base`, each whole."""
    base = base or Settings()
    if not isinstance(raw, Mapping):
        raise QueueConfigError("the configuration must be an object with the settings as keys")
    changes: dict[str, Any] = {}
    for key, value in raw.items():
        match key:
            case "MaxScheduleCost":
                changes["max_schedule_cost"] = _limit(key, value)
            case "StoreMaxScheduleCost":
                changes["store_max_schedule_cost"] = _limits(key, value)
            case "OperatorStepCost":
                changes["operator_step_cost"] = _step_costs(value)
            case "MaxWaitingOperator":
                changes["max_waiting_operator"] = _limit(key, value)
            case "SchedulerMaxWaitingOperator":
                changes["scheduler_max_waiting_operator"] = _limits(key, value)
            case "CooldownSeconds":
                changes["cooldown_s"] = _seconds(key, value)
            case "ReplaceLowerPriority":
                changes["replacement"] = _switch(key, value)
            case _:
                raise QueueConfigError(f"unknown setting {key!r}: it must be one of {', '.join(KEYS)}")
    return msgspec.structs.replace(base, **changes)


def _whole_number(where: str, value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST_NUMBER:
        raise QueueConfigError(
            f"{where} is {value!r}: it must be a whole number from 0 to {_LARGEST_NUMBER}, or null for no limit"
        )
    return value


def _seconds(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST_NUMBER:
        raise QueueConfigError(f"{where} is {value!r}: it must be a number of seconds, 0 or more")
    return float(value)


def _switch(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise QueueConfigError(f"{where} is {value!r}: it must be true or false")
    return value


def _limit(where: str, value: Any) -> int | None:
    return None if value is None else _whole_number(where, value)


def _limits(where: str, value: Any) -> dict[str, int | None]:
    if not isinstance(value, Mapping):
        raise QueueConfigError(f"{where} must be an object of name: number")
    result: dict[str, int | None] = {}
    for name, number in value.items():
        if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
            raise QueueConfigError(f"{where} has the name {name!r}: it must be a store id or a scheduler's name")
        result[str(name)] = _limit(f"{where}[{name}]", number)
    return result


def _step_costs(value: Any) -> dict[StepKind, dict[str, int]]:
    if not isinstance(value, Mapping):
        raise QueueConfigError("OperatorStepCost must be an object of step kind: {role: number}")
    result: dict[StepKind, dict[str, int]] = {}
    for name, roles in value.items():
        kind = next((kind for kind in ROLES if kind.value == name), None)
        if kind is None:
            known = ", ".join(kind.value for kind in ROLES)
            raise QueueConfigError(f"OperatorStepCost names the step {name!r}: it must be one of {known}")
        if not isinstance(roles, Mapping):
            raise QueueConfigError(f"OperatorStepCost[{name}] must be an object of role: number")
        for role in roles:
            if role not in ROLES[kind]:
                raise QueueConfigError(f"{name} has no role {role!r}: it has {', '.join(sorted(ROLES[kind]))}")
        result[kind] = {role: _whole_number(f"OperatorStepCost[{name}][{role}]", cost) for role, cost in roles.items()}
    return result
