"""What PD has been told about where replicas belong: placement rules, labels, space, and what it must not touch."""

from collections.abc import Mapping

import msgspec

#: A store with such a label takes only what a rule names by that label (TiFlash: `engine`).
_EXCLUSIVE = frozenset({"engine", "exclusive"})


class LabelConstraint(msgspec.Struct, frozen=True, gc=False):
    key: str
    #: in, notIn, exists, notExists.
    op: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key, "")
        match self.op:
            case "in":
                return value != "" and value in self.values
            case "notIn":
                return value == "" or value not in self.values
            case "exists":
                return value != ""
            case "notExists":
                return value == ""
        return False


class PlacementRule(msgspec.Struct, frozen=True, gc=False):
    """So many replicas of this role, on stores with these labels, as far apart as these labels tell."""

    group: str = "pd"
    id: str = "default"
    start_key: str = ""
    #: "": the end.
    end_key: str = ""
    #: voter, leader, follower, learner.
    role: str = "voter"
    count: int = 3
    constraints: tuple[LabelConstraint, ...] = ()
    location_labels: tuple[str, ...] = ()
    isolation_level: str = ""
    is_witness: bool = False
    #: It replaces the rules of its group before it; its group replaces the groups before it.
    override: bool = False
    group_override: bool = False
    #: Its place: the index of its group, then its own.
    order: tuple[int, int] = (0, 0)

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Does a store with these labels satisfy it?"""
        named = {constraint.key for constraint in self.constraints}
        if any((key in _EXCLUSIVE or key.startswith("$")) and key not in named for key in labels):
            return False
        return all(constraint.matches(labels) for constraint in self.constraints)


class Placement(msgspec.Struct, frozen=True, gc=False):
    #: In the order in which PD applies them.
    rules: tuple[PlacementRule, ...] = ()
    #: Ranges of keys with the label `schedule=deny`: (first key, last key or "").
    denied: tuple[tuple[str, str], ...] = ()
    #: A store whose disk is fuller than this takes no replicas.
    low_space_ratio: float = 0.8
    #: `halt-scheduling`: nothing at all is scheduled.
    halted: bool = False

    @property
    def few_voters(self) -> bool:
        """Some range of keys may be kept with fewer than three voters: losing one of two leaves no quorum."""
        voters: dict[tuple[str, str], int] = {}
        for rule in self.rules:
            if rule.role != "learner":
                voters[rule.start_key, rule.end_key] = voters.get((rule.start_key, rule.end_key), 0) + rule.count
        return any(count < 3 for count in voters.values())
