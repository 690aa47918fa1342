"""From PD's old limits to the five settings, each with its reason.

The old scheme counts operators of four kinds over the whole cluster; the new one adds up cost per store. No formula
turns one into the other exactly: a count says nothing about where the operators land. What a migration can keep is the
intent: how many moves one store should bear at once, and which schedulers were held back or switched off.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mooring.core.model.operator import StepKind
from mooring.core.queue.config import DEFAULT_STEP_COST, REGION_SCHEDULERS, Settings

#: Old limit → (what PD ships, the schedulers that obeyed it).
_OLD_LIMITS: Final[Mapping[str, tuple[int, tuple[str, ...]]]] = {
    "leader-schedule-limit": (4, ("balance-leader",)),
    "region-schedule-limit": (2048, ("balance-region",)),
    "replica-schedule-limit": (64, ("replica",)),
    "merge-schedule-limit": (8, ("merge",)),
    "hot-region-schedule-limit": (4, ("hot",)),
}
#: PD's per-store rate, per minute, and the value from which on it means "unlimited".
_DEFAULT_RATE: Final = 15.0
_MAGIC_UNLIMITED: Final = 1e8
#: What one move costs the store that receives it (AddLearner, PromoteLearner, TransferLeader).
_MOVE_IN: Final = (
    DEFAULT_STEP_COST[StepKind.ADD_LEARNER]["to"]
    + DEFAULT_STEP_COST[StepKind.PROMOTE_LEARNER]["to"]
    + DEFAULT_STEP_COST[StepKind.TRANSFER_LEADER]["to"]
)


class OldConfigError(ValueError):
    """Not a configuration of PD; the message says where and what would be right."""


class MigratedSetting(msgspec.Struct, frozen=True):
    name: str
    value: Any
    why: str


class Migration(msgspec.Struct, frozen=True):
    settings: tuple[MigratedSetting, ...]
    #: Old settings that have no counterpart, and why none is needed.
    dropped: tuple[MigratedSetting, ...]
    #: What a person must know before any of it is set.
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "config": {setting.name: setting.value for setting in self.settings},
            "reasons": {setting.name: setting.why for setting in self.settings},
            "dropped": {setting.name: setting.why for setting in self.dropped},
            "warnings": list(self.warnings),
        }

    def rows(self) -> list[tuple[str, str, str]]:
        named = [(s.name, s) for s in self.settings] + [(f"({s.name})", s) for s in self.dropped]
        return [(name, msgspec.json.encode(s.value).decode(), s.why) for name, s in named]


def migrate_config(raw: Any) -> Migration:
    """Read PD's configuration (whole, or its `schedule` section) and say what to set instead."""
    if not isinstance(raw, Mapping):
        raise OldConfigError("it must be a JSON object, as `pd-ctl config show` prints it")
    nested = raw.get("schedule", raw)
    if not isinstance(nested, Mapping):
        raise OldConfigError("`schedule` must be an object")
    known = [*_OLD_LIMITS, "store-limit", "store-balance-rate", "scheduler-max-waiting-operator"]
    if not any(key in nested for key in known):
        raise OldConfigError(f"it has none of the old limits ({', '.join(known)})")
    rate, rate_why = _base_rate(nested)
    scheduler_caps, caps_why = _scheduler_caps(nested)
    overrides, overrides_why, warnings = _stores(nested, rate)
    waiting = _number(nested, "scheduler-max-waiting-operator", None)
    settings = (
        MigratedSetting("MaxScheduleCost", Settings().max_schedule_cost, rate_why),
        MigratedSetting("StoreMaxScheduleCost", overrides, overrides_why),
        MigratedSetting(
            "OperatorStepCost", {}, "PD had no cost per step; the defaults hold until a calibration says otherwise"
        ),
        _max_waiting(waiting),
        MigratedSetting("SchedulerMaxWaitingOperator", scheduler_caps, caps_why),
    )
    return Migration(settings, _dropped(nested), warnings)


def _number(config: Mapping[str, Any], key: str, default: float | None) -> float | None:
    value = config.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise OldConfigError(f"{key} is {value!r}: it must be a number, 0 or more")
    return value


def _base_rate(config: Mapping[str, Any]) -> tuple[float, str]:
    """The rate most stores had: what the new default stands for."""
    rate = _number(config, "store-balance-rate", None)
    rates = [pair["add-peer"] for pair in _store_rates(config).values()]
    if rate is None:
        # As many stores have one rate as another: PD's own is normal, else the highest, so that fewer are faster.
        often = max(map(rates.count, rates), default=0)
        most = {one for one in rates if rates.count(one) == often and 0 < one < _MAGIC_UNLIMITED}
        rate = _DEFAULT_RATE if _DEFAULT_RATE in most else max(most, default=_DEFAULT_RATE)
    why = f"{Settings().max_schedule_cost} lets two moves into a store at once, the design's default"
    if rate != _DEFAULT_RATE:
        why += f"; your stores took {rate:g} peers a minute: raise it in proportion only after watching the stores"
    return rate or _DEFAULT_RATE, why


def _store_rates(config: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    stores = config.get("store-limit") or {}
    if not isinstance(stores, Mapping):
        raise OldConfigError("store-limit must be an object of store id: {add-peer, remove-peer}")
    rates: dict[str, dict[str, float]] = {}
    for store, pair in stores.items():
        if not isinstance(pair, Mapping):
            raise OldConfigError(f"store-limit[{store}] must be an object with add-peer and remove-peer")
        add = _number(pair, "add-peer", _DEFAULT_RATE)
        remove = _number(pair, "remove-peer", _DEFAULT_RATE)
        rates[str(store)] = {"add-peer": add or 0.0, "remove-peer": remove or 0.0}
    return rates


def _stores(config: Mapping[str, Any], base: float) -> tuple[dict[str, int | None], str, tuple[str, ...]]:
    """Stores that were slower keep their distance from the others, in whole moves. None is set above the design's cost:
    a rate a minute says nothing about how much a store bears at once."""
    normal = Settings().max_schedule_cost or 0
    overrides: dict[str, int | None] = {}
    faster: dict[str, float] = {}
    for store, pair in _store_rates(config).items():
        rate = pair["add-peer"]
        if rate == 0:
            overrides[store] = 0
        elif rate > base:
            faster[store] = rate
        elif rate < base:
            moves = max(1, round(normal / _MOVE_IN * rate / base))
            if moves * _MOVE_IN < normal:
                overrides[store] = moves * _MOVE_IN
    why = f"stores that took fewer than {base:g} peers a minute, in proportion, in whole moves of {_MOVE_IN}; 0 was 0"
    if not overrides:
        why = "no store was set below the others"
    if not faster:
        return overrides, why, ()
    named = ", ".join(f"{store} ({_rate(rate)})" for store, rate in faster.items())
    warning = (
        f"stores above {base:g} peers a minute keep the design's {normal}: {named}. A rate says nothing about how much "
        f'a store bears at once; where you have watched it, set StoreMaxScheduleCost {{"<id>": {normal * 2}}} yourself'
    )
    return overrides, why, (warning,)


def _rate(rate: float) -> str:
    return "unlimited" if rate >= _MAGIC_UNLIMITED else f"{rate:g} a minute"


def _scheduler_caps(config: Mapping[str, Any]) -> tuple[dict[str, int], str]:
    """A limit of 0 switched a scheduler off: so does a cap of 0. Other counts are what the cost per store replaces."""
    caps: dict[str, int] = {}
    for key, (_, schedulers) in _OLD_LIMITS.items():
        if _number(config, key, None) == 0:
            caps.update(dict.fromkeys(schedulers, 0))
    if caps:
        return caps, "their old limit was 0, which switched them off; a cap of 0 does the same"
    return {}, f"none of {', '.join(REGION_SCHEDULERS)} was switched off"


def _max_waiting(waiting: float | None) -> MigratedSetting:
    normal = Settings().max_waiting_operator
    if waiting is None:
        return MigratedSetting("MaxWaitingOperator", normal, "not set in PD; the design's default")
    if waiting == 5:
        why = "PD's 5 is its default, counted per description; the design's is 3 per scheduler"
        return MigratedSetting("MaxWaitingOperator", normal, why)
    return MigratedSetting(
        "MaxWaitingOperator", int(waiting), "scheduler-max-waiting-operator, which meant this despite its name"
    )


def _dropped(config: Mapping[str, Any]) -> tuple[MigratedSetting, ...]:
    dropped: list[MigratedSetting] = []
    for key, (shipped, schedulers) in _OLD_LIMITS.items():
        value = _number(config, key, None)
        if value:
            origin = "PD's default" if value == shipped else "your value"
            why = f"{origin}; a count over all stores, obeyed by {schedulers[0]}: the cost per store takes its place"
            dropped.append(MigratedSetting(key, value, why))
    for key in ("store-balance-rate", "store-limit"):
        if config.get(key):
            why = (
                "a rate per minute; limits are now what runs at once (a cooldown bounds the rate too, if you need one)"
            )
            dropped.append(MigratedSetting(key, config[key], why))
    return tuple(dropped)
