"""Which moves keep PD's placement rules fitted: those after which PD's own checkers find nothing to do.

A region may be moved only while its replicas fit its rules exactly: each rule has its count, and no replica is left
over. A move must keep that, with replicas no closer together than before. What does not fit now is left to
PD's checkers, which are never paused.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Final

import msgspec

from mooring.core.model.placement import Placement, PlacementRule
from mooring.core.model.tidb import Region

#: As PD: one more label that differs counts a hundredfold.
_BASE: Final = 100
#: Bounds against a malicious PD: a region with more replicas, rules, labels of a rule or ways to assign the replicas
#: than this is left to PD's checkers.
MOST_REPLICAS: Final = 32
MOST_RULES: Final = 32
MOST_LABELS: Final = 16
MOST_WAYS: Final = 2_000
Labels = Mapping[int, Mapping[str, str]]
#: Per rule, in their order: (pairs too close together, negated; how far apart). More is better.
Fit = tuple[tuple[int, int], ...]


class RegionReplica(msgspec.Struct, frozen=True, gc=False):
    store: int
    #: Voter, Learner, Witness; what is between two roles fits no rule.
    role: str
    leads: bool = False


def replicas_of(region: Region) -> list[RegionReplica]:
    return [RegionReplica(p.store_id, p.role, p.store_id == region.leader_store) for p in region.peers]


class RuleBook:
    """Placement rules by range of keys."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self._starts, self._rules = _segments(placement.rules)
        self._denied = _merged(placement.denied)

    def of(self, region: Region) -> Sequence[PlacementRule]:
        """The rules of a region; none, if it reaches over a boundary and PD has yet to split it there."""
        place = bisect_right(self._starts, region.start_key) - 1
        end = self._starts[place + 1] if place + 1 < len(self._starts) else ""
        return self._rules[place] if not end or (region.end_key and region.end_key <= end) else ()

    def denies(self, region: Region) -> bool:
        """Does some of it have the label `schedule=deny`?"""
        if not self._denied:
            return False
        place = bisect_right(self._denied, (region.start_key, "\U0010ffff")) - 1
        before = place >= 0 and _reaches(self._denied[place][1], region.start_key)
        after = self._denied[place + 1][0] if place + 1 < len(self._denied) else None
        return before or (after is not None and (not region.end_key or after < region.end_key))

    def voters(self, region: Region) -> int:
        return sum(rule.count for rule in self.of(region) if rule.role != "learner")

    def fit(self, region: Region, replicas: Sequence[RegionReplica], labels: Labels) -> Fit | None:
        """How well they fit its rules; None: not exactly."""
        rules = self.of(region)
        if not rules or sum(rule.count for rule in rules) != len(replicas) or len(replicas) > MOST_REPLICAS:
            return None
        if not _countable(rules, replicas, labels):
            return None
        return max(_fits(rules, tuple(replicas), labels), default=None)


def _countable(rules: Sequence[PlacementRule], replicas: Sequence[RegionReplica], labels: Labels) -> bool:
    """Are there ways to deal the replicas out to the rules, and so few that all can be tried?"""
    ways = 1
    for rule in rules:
        ways *= comb(len(_able(rule, replicas, labels)), rule.count)
        if not 0 < ways <= MOST_WAYS or len(rule.location_labels) > MOST_LABELS:
            return False
    return True


def _able(rule: PlacementRule, replicas: Iterable[RegionReplica], labels: Labels) -> list[RegionReplica]:
    return [replica for replica in replicas if _plays(rule, replica) and rule.takes(labels[replica.store])]


def _fits(rules: Sequence[PlacementRule], left: tuple[RegionReplica, ...], labels: Labels) -> Iterator[Fit]:
    if not rules:
        yield ()
        return
    rule, rest = rules[0], rules[1:]
    for chosen in combinations(_able(rule, left, labels), rule.count):
        others = tuple(replica for replica in left if replica not in chosen)
        apart = _apart(rule, [labels[replica.store] for replica in chosen])
        for fit in _fits(rest, others, labels):
            yield (apart, *fit)


def _plays(rule: PlacementRule, replica: RegionReplica) -> bool:
    if rule.role == "learner":
        return replica.role == "Learner"
    if replica.role != ("Witness" if rule.is_witness else "Voter"):
        return False
    return rule.role == "voter" or replica.leads == (rule.role == "leader")


def _apart(rule: PlacementRule, where: Sequence[Mapping[str, str]]) -> tuple[int, int]:
    names = rule.location_labels
    level = names.index(rule.isolation_level) if rule.isolation_level in names else -1
    close = score = 0
    for one, other in combinations(where, 2):
        differ = next((i for i, name in enumerate(names) if _differ(one.get(name, ""), other.get(name, ""))), None)
        if differ is not None:
            score += _BASE ** (len(names) - differ - 1)
        close += level >= 0 and (differ is None or differ > level)
    return -close, score


def _differ(one: str, other: str) -> bool:
    """A store without the label is at the same place as any other."""
    return bool(one and other) and one.lower() != other.lower()


# ── Ranges ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _segments(rules: Sequence[PlacementRule]) -> tuple[list[str], list[tuple[PlacementRule, ...]]]:
    """Where the rules change, and which apply from there on; none where too many do."""
    begins: dict[str, list[int]] = {"": []}
    ends: dict[str, list[int]] = {}
    for number, rule in enumerate(rules):
        begins.setdefault(rule.start_key, []).append(number)
        if rule.end_key:
            ends.setdefault(rule.end_key, []).append(number)
    starts = sorted({*begins, *ends})
    found, active = [], set[int]()
    for start in starts:
        active.difference_update(ends.get(start, ()))
        active.update(begins.get(start, ()))
        known = sorted(active) if len(active) <= MOST_RULES else ()
        found.append(tuple(_applied([rules[number] for number in known])))
    return starts, found


def _applied(rules: Sequence[PlacementRule]) -> list[PlacementRule]:
    """As PD: a rule that overrides replaces those of its group before it, a group those before it."""
    found: list[PlacementRule] = []
    group: list[PlacementRule] = []
    for rule in rules:
        if group and group[0].group != rule.group:
            found = [] if rule.group_override else found + group
            group = []
        group = [rule] if rule.override else [*group, rule]
    return found + group


def _merged(ranges: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for start, end in sorted(ranges):
        if found and _reaches(found[-1][1], start):
            last = found[-1][1]
            found[-1] = (found[-1][0], "" if not last or not end else max(last, end))
        else:
            found.append((start, end))
    return found


def _reaches(end: str, key: str) -> bool:
    """Does a range that ends there hold this key?"""
    return not end or key < end
