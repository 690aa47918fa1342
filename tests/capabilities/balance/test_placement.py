"""T12: PD's placement rules, labels and space are read and respected: what we move, PD's checkers find in order."""

import pytest

from mooring.capabilities.balance import BalancePolicy, propose
from mooring.capabilities.balance.placement import RegionReplica, RuleBook
from mooring.core.model.placement import LabelConstraint, Placement, PlacementRule
from mooring.core.model.tidb import Peer, Region, Store

TIFLASH = LabelConstraint("engine", "in", ("tiflash",))
VOTERS = PlacementRule()
LEARNER = PlacementRule("tiflash", "table-1", "10", "20", role="learner", count=1, constraints=(TIFLASH,))


def region(start="", end="", *where, number=1, roles=None):
    peers = tuple(Peer(number * 100 + s, s, (roles or {}).get(s, "Voter")) for s in where)
    return Region(number, start, end, peers=peers, leader_store=where[0] if where else 0, size_mib=96)


def fit(rules, labels, replicas, at=("11", "12")):
    book = RuleBook(Placement(tuple(rules)))
    return book.fit(region(*at), [RegionReplica(*r) for r in replicas], labels)


# ── Which rules ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_region_has_the_rules_of_its_range():
    """Two groups add up; outside the table's range only the default counts; over a boundary nothing is known."""
    book = RuleBook(Placement((VOTERS, LEARNER)))
    assert [r.id for r in book.of(region("11", "12"))] == ["default", "table-1"]
    assert [r.id for r in book.of(region("20", ""))] == ["default"]
    assert [r.id for r in book.of(region("", "10"))] == ["default"]
    assert book.of(region("0F", "11")) == () and book.of(region("1F", "")) == ()
    assert book.voters(region("11", "12")) == 3


def test_overrides_replace_what_comes_before():
    """As PD: a rule those of its group, a group the groups before it."""
    own = PlacementRule("pd", "own", "10", "20", count=5, override=True, order=(0, 1))
    book = RuleBook(Placement((VOTERS, own)))
    assert [r.id for r in book.of(region("11", "12"))] == ["own"]
    group = PlacementRule("z", "other", "10", "20", count=2, group_override=True, order=(9, 0))
    assert [r.id for r in RuleBook(Placement((VOTERS, group))).of(region("11", "12"))] == ["other"]
    assert [r.id for r in RuleBook(Placement((VOTERS, group))).of(region("21", "22"))] == ["default"]


@pytest.mark.parametrize(
    ("start", "end", "denied"),
    [("", "10", False), ("10", "11", True), ("0F", "11", True), ("2F", "", True), ("30", "", False), ("05", "", True)],
)
def test_ranges_that_must_not_be_scheduled(start, end, denied):
    """T12: the label `schedule=deny`, as TiDB Lightning sets it for what it imports."""
    book = RuleBook(Placement((VOTERS,), denied=(("10", "20"), ("18", "30"))))
    assert book.denies(region(start, end)) is denied


# ── What fits ─────────────────────────────────────────────────────────────────────────────────────────────────────

LABELS = {
    1: {"zone": "a", "host": "1"},
    2: {"zone": "b", "host": "2"},
    3: {"zone": "c", "host": "3"},
    4: {"zone": "c", "host": "4"},
    9: {"engine": "tiflash"},
}


def test_exactly_what_the_rules_say_fits():
    """Three voters and a learner on TiFlash; no more, no less, and nobody elsewhere."""
    voters = [(1, "Voter", True), (2, "Voter"), (3, "Voter")]
    assert fit((VOTERS, LEARNER), LABELS, [*voters, (9, "Learner")]) is not None
    assert fit((VOTERS, LEARNER), LABELS, voters) is None, "its learner is missing"
    assert fit((VOTERS, LEARNER), LABELS, [*voters, (4, "Learner")]) is None, "no TiFlash there"
    assert fit((VOTERS,), LABELS, [*voters[:2], (9, "Voter")]) is None, "TiFlash takes only what names it"
    assert fit((VOTERS,), LABELS, [*voters[:2], (3, "Witness")]) is None
    assert fit((VOTERS,), LABELS, [*voters[:2], (3, "IncomingVoter")]) is None


def test_roles_of_leader_and_follower():
    """A rule may say where the leader is."""
    lead = PlacementRule("pd", "lead", role="leader", count=1, constraints=(LabelConstraint("zone", "in", ("a",)),))
    rules = (lead, PlacementRule("pd", "rest", role="follower", count=2))
    assert fit(rules, LABELS, [(1, "Voter", True), (2, "Voter"), (3, "Voter")]) is not None
    assert fit(rules, LABELS, [(1, "Voter"), (2, "Voter", True), (3, "Voter")]) is None


def test_the_further_apart_the_better():
    """As PD scores it, the widest label first; the isolation level before everything."""
    apart = PlacementRule(location_labels=("zone", "host"))
    three = fit((apart,), LABELS, [(1, "Voter", True), (2, "Voter"), (3, "Voter")])
    close = fit((apart,), LABELS, [(1, "Voter", True), (4, "Voter"), (3, "Voter")])
    assert three > close
    isolated = PlacementRule(location_labels=("zone", "host"), isolation_level="zone")
    assert fit((isolated,), LABELS, [(1, "Voter", True), (4, "Voter"), (3, "Voter")])[0][0] == -1


# ── What is moved ─────────────────────────────────────────────────────────────────────────────────────────────────


def moves(town, source, room=20):
    return [
        (w.move.regions[0], [(s.kind.value, s.store) for s in w.move.steps])
        for w in propose(town.picture(), source, room)
    ]


def test_tables_with_five_replicas_keep_them(town):
    """T12: `replica`, asked for by name, counts by each region's own rules: no churn between 3 and 5."""
    made = town(stores=6)
    five = PlacementRule("pd", "five", "00000001", "00000003", count=5, override=True, order=(0, 1))
    made.summary.set_placement(Placement((VOTERS, five)))
    made.region(1, 1, 2, 3, 4, 5)
    made.region(2, 1, 2, 3, 4)
    for n in range(3, 30):
        made.region(n, *[1 + (n + k) % 6 for k in range(3)])
    assert {number for number, _ in moves(made, "replica")} == {2}


def test_learners_on_most_regions_give_plain_ones_no_fourth_voter(town):
    """T12: TiFlash learners do not count as voters, with rules or without."""
    made = town(stores=5, labels={5: {"engine": "tiflash"}})
    for n in range(1, 20):
        made.summary.put(region(f"{n:08d}", f"{n + 1:08d}", 1, 2, 3, 5, number=n, roles={5: "Learner"}))
    made.summary.put(region("00000020", "", 1, 2, 3, number=20))
    assert moves(made, "replica") == []


def test_a_store_low_on_space_gets_nothing(town):
    """T12: PD's low-space-ratio; the store holds least of all, and is no target."""
    made = town(stores=4)
    made.summary.set_placement(Placement((VOTERS,)))
    for n in range(1, 40):
        made.region(n, 1, 2, 3)
    assert moves(made, "balance-region")
    made.stores[4] = Store(4, "s4:1", region_count=0, capacity_bytes=100 << 30, available_bytes=1 << 30)
    made.tell()
    assert moves(made, "balance-region") == []


def test_a_voter_goes_only_where_its_rule_lets_it(town):
    """T12: a policy that keeps a table in two zones: the empty store in the third zone is no target for it."""
    made = town(stores=4, labels={n: {"zone": "abcz"[n - 1]} for n in range(1, 5)})
    within = PlacementRule(constraints=(LabelConstraint("zone", "in", ("a", "b", "c")),))
    for n in range(1, 40):
        made.region(n, 1, 2, 3)
    made.summary.set_placement(Placement((within,)))
    assert moves(made, "balance-region") == []
    made.summary.set_placement(Placement((VOTERS,)))
    assert moves(made, "balance-region")


def test_what_does_not_fit_now_is_left_to_pd(town):
    """T12: a region with a replica too few or too many is PD's checkers' business."""
    made = town(stores=5)
    made.summary.set_placement(Placement((VOTERS,)))
    for n in range(1, 40):
        made.region(n, 1, 2)
    assert moves(made, "balance-region") == []


def test_tiflash_is_balanced_among_itself(town):
    """T12: with PD's balance-region paused nobody else would: learners move to other TiFlash stores, as learners."""
    made = town(stores=5, labels={4: {"engine": "tiflash"}, 5: {"engine": "tiflash"}})
    learner = PlacementRule("tiflash", "all", role="learner", count=1, constraints=(TIFLASH,))
    made.summary.set_placement(Placement((VOTERS, learner)))
    for n in range(1, 20):
        made.summary.put(region(f"{n:08d}", f"{n + 1:08d}", 1, 2, 3, 4, number=n, roles={4: "Learner"}))
    found = moves(made, "balance-region", room=3)
    assert [steps for _, steps in found] == [[("AddLearner", 5), ("RemovePeer", 4)]] * 3


def test_witnesses_neither_lead_nor_move(town):
    """T12: a witness has no data to lead with."""
    made = town(stores=4, policy=BalancePolicy(sources=("balance-leader", "balance-region")))
    made.summary.set_placement(
        Placement((PlacementRule(count=2), PlacementRule("pd", "witness", count=1, is_witness=True)))
    )
    for n in range(1, 30):
        made.summary.put(region(f"{n:08d}", f"{n + 1:08d}", 1, 2, 3, number=n, roles={3: "Witness"}))
    assert {w.move.steps[0].to_store for w in propose(made.picture(), "balance-leader", 9)} == {2}
    assert all(("RemovePeer", 3) not in steps for _, steps in moves(made, "balance-region"))


def test_regions_that_must_not_be_scheduled_are_left_alone(town):
    """T12: `schedule=deny`."""
    made = town(stores=4)
    for n in range(1, 40):
        made.region(n, 1, 2, 3)
    made.summary.set_placement(Placement((VOTERS,), denied=(("", ""),)))
    assert moves(made, "balance-region") == [] and list(propose(made.picture(), "balance-leader", 9)) == []


# ── A hostile PD ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rules", "replicas"),
    [
        ([PlacementRule("pd", str(n), count=15) for n in range(2)], 30),
        ([PlacementRule("pd", str(n), count=1) for n in range(12)], 12),
        ([PlacementRule("pd", "one", count=5000)], 5000),
        ([PlacementRule("pd", "one", location_labels=tuple(map(str, range(100_000))))], 3),
    ],
    ids=["halves", "each its own", "very many", "very many labels"],
)
def test_rules_that_can_be_fitted_in_endless_ways_are_none_of_ours(rules, replicas):
    """T12: trying them all would take the leader's loop for hours; such a region is left to PD's checkers."""
    labels = {n: {"zone": str(n)} for n in range(replicas)}
    assert fit(rules, labels, [(n, "Voter", n == 0) for n in range(replicas)]) is None


def test_a_few_rules_without_labels_are_still_fitted():
    """Five voters in three rules can be dealt out in dozens of ways: all are tried."""
    rules = [PlacementRule("pd", str(n), count=count) for n, count in enumerate((2, 2, 1))]
    assert fit(rules, {n: {} for n in range(5)}, [(n, "Voter", n == 0) for n in range(5)]) is not None


def test_rules_that_all_overlap_are_none_of_ours():
    """T12: tens of thousands of rules over one another are sorted in no time: where too many apply, none is known."""
    rules = tuple(PlacementRule("pd", f"{n:05}", f"{n:05}", "") for n in range(20_000))
    book = RuleBook(Placement(rules))
    assert [r.id for r in book.of(region("00001", "00002"))] == ["00000", "00001"]
    assert book.of(region("15000", "15001")) == ()
