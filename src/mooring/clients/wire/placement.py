"""PD's placement rules, region labels and schedule settings as its API has them → the model.

Versions before 4.0 have no rules and none before 5.2 has region labels: they have `max-replicas` and location labels,
which are one rule for everything.
"""

from typing import Any, Final

import msgspec

from mooring.core.model.placement import LabelConstraint, Placement, PlacementRule
from mooring.core.model.tidb import LARGEST_NUMBER, Number


class _Constraint(msgspec.Struct):
    key: str = ""
    op: str = ""
    values: list[str] | None = None


class _Rule(msgspec.Struct):
    group_id: str = ""
    id: str = ""
    index: Number = 0
    override: bool = False
    start_key: str = ""
    end_key: str = ""
    role: str = "voter"
    is_witness: bool = False
    count: Number = 0
    label_constraints: list[_Constraint] | None = None
    location_labels: list[str] | None = None
    isolation_level: str = ""


class _Group(msgspec.Struct):
    id: str = ""
    index: Number = 0
    override: bool = False


class _Label(msgspec.Struct):
    key: str = ""
    value: str = ""


class _Range(msgspec.Struct):
    start_key: str = ""
    end_key: str = ""


class _LabelRule(msgspec.Struct):
    labels: list[_Label] | None = None
    rule_type: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


class _Schedule(msgspec.Struct, rename="kebab"):
    low_space_ratio: Any = 0.8
    halt_scheduling: Any = None


class _Replication(msgspec.Struct, rename="kebab"):
    max_replicas: Any = 3
    location_labels: Any = ""
    isolation_level: Any = ""


_RULES: Final = msgspec.json.Decoder(list[_Rule] | None)
_GROUPS: Final = msgspec.json.Decoder(list[_Group] | None)
_LABEL_RULES: Final = msgspec.json.Decoder(list[_LabelRule] | None)
_RANGES: Final = msgspec.json.Decoder(list[_Range] | None)
_SCHEDULE: Final = msgspec.json.Decoder(_Schedule)
_REPLICATION: Final = msgspec.json.Decoder(_Replication)
#: Each region is fitted by each of them.
_MOST_RULES: Final = 10_000


def placement(
    schedule: bytes, replicate: bytes, rules: bytes | None, groups: bytes | None, labels: bytes | None
) -> Placement:
    """From the answers of /config/schedule, /config/replicate, /config/rules, /config/rule_groups and
    /config/region-label/rules; None: this PD has no such thing, or has it switched off."""
    try:
        settings, replication = _SCHEDULE.decode(schedule), _REPLICATION.decode(replicate)
        found = _rules(rules, groups) if rules is not None else (_one_rule(replication),)
        ratio = settings.low_space_ratio
        return Placement(
            rules=found,
            denied=_denied(_LABEL_RULES.decode(labels) or []) if labels is not None else (),
            low_space_ratio=float(ratio) if isinstance(ratio, int | float) and abs(ratio) < LARGEST_NUMBER else 0.8,
            halted=_is_true(settings.halt_scheduling),
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"PD's placement rules are not understood: {error}") from error


def _rules(body: bytes, groups: bytes | None) -> tuple[PlacementRule, ...]:
    known = {group.id: group for group in (_GROUPS.decode(groups) if groups is not None else None) or []}
    listed = _RULES.decode(body) or []
    if len(listed) > _MOST_RULES:
        raise ValueError(f"PD has {len(listed)} placement rules, more than are read")
    found = [_rule(rule, known.get(rule.group_id, _Group())) for rule in listed]
    return tuple(sorted(found, key=lambda r: (r.order[0], r.group, r.order[1], r.id)))


def _rule(rule: _Rule, group: _Group) -> PlacementRule:
    constraints = (LabelConstraint(c.key, c.op, tuple(c.values or ())) for c in rule.label_constraints or ())
    return PlacementRule(
        group=rule.group_id,
        id=rule.id,
        start_key=rule.start_key.upper(),
        end_key=rule.end_key.upper(),
        role=rule.role,
        count=max(0, rule.count),
        constraints=tuple(constraints),
        location_labels=tuple(rule.location_labels or ()),
        isolation_level=rule.isolation_level,
        is_witness=rule.is_witness,
        override=rule.override,
        group_override=group.override,
        order=(group.index, rule.index),
    )


def _one_rule(replication: _Replication) -> PlacementRule:
    count, labels = replication.max_replicas, replication.location_labels
    names = labels.split(",") if isinstance(labels, str) else labels if isinstance(labels, list) else ()
    return PlacementRule(
        count=max(0, count) if isinstance(count, int) and count < LARGEST_NUMBER else 3,
        location_labels=tuple(str(name).strip() for name in names if str(name).strip()),
        isolation_level=str(replication.isolation_level),
    )


def _denied(rules: list[_LabelRule]) -> tuple[tuple[str, str], ...]:
    found = set()
    for rule in rules:
        if any((label.key, label.value) == ("schedule", "deny") for label in rule.labels or ()):
            for part in _RANGES.decode(rule.data) or ():
                found.add((part.start_key.upper(), part.end_key.upper()))
    return tuple(sorted(found))


def _is_true(value: Any) -> bool:
    return value in (True, "true")
