"""The verdict, drawn from what was seen."""

import msgspec
import pytest

from mooring_lab.judge.findings import Finding
from mooring_lab.rehearse.observer import GonePod
from mooring_lab.rehearse.outcome import BROKEN, KEPT, Interrupted, NotPlayed, Observed, RegionLosses, judge
from mooring_lab.rehearse.report import render
from mooring_lab.rehearse.room import Unplaced

CALM = Observed(
    source="test",
    taken_at="2026-01-01T00:00:00Z",
    nodes=3,
    pods=9,
    seed=1,
    features=("mix",),
    events=("rack 2 is lost: n1",),
    names=("rack-lost",),
    ended="quiet",
    played_s=300.0,
    workloads=4,
)
TOLL = RegionLosses(cluster="tidb/demo", regions=300)
SHORT = Interrupted(
    workload="Deployment shop/web", wanted=5, before=5, worst=3, away_s=42.0, from_s=0.0, until_s=42.0, at_end=5
)
LOST = GonePod(at_s=120.0, pod="shop/web-1", workload="Deployment shop/web", node="s1", how="lost")
WAITS = Unplaced(pod="shop/web-1", workload="Deployment shop/web", cpu_milli=500, memory_mib=64, why="Insufficient cpu")
BREACH = Finding(
    promise="budget", subject="PodDisruptionBudget shop/web", least=4, worst=2, since=0.0, until=63.0, seconds=63.0
)
replace = msgspec.structs.replace


def test_nothing_happened_holds() -> None:
    """O4: no pod is interrupted, and the first line says so."""
    outcome = judge(CALM)
    assert (outcome.verdict, outcome.answer, outcome.over_s) == (KEPT, "HOLDS: no pod is interrupted", 0.0)


def test_short_for_a_while_but_above_every_line_holds_and_says_when_it_is_over() -> None:
    """O4: replicas missing is an interruption, not a broken promise."""
    outcome = judge(replace(CALM, interrupted=(SHORT,)))
    assert (outcome.verdict, outcome.over_s) == (KEPT, 42.0)
    assert outcome.answer == "HOLDS: 1 workload short for a while, none below its line; over after 0:42"


def test_elections_alone_are_told_with_their_end() -> None:
    """O4: no replica counts as short, regions had no leader for a while: it is over when the last has one."""
    losses = replace(TOLL, without_leader=100, without_leader_s=15.0, leaders_until_s=16.5)
    outcome = judge(replace(CALM, regions=(losses,)))
    assert (outcome.over_s, outcome.answer) == (16.5, "HOLDS: only leaders are elected again; over after 0:16")
    assert judge(replace(CALM, regions=(replace(losses, leaders_until_s=None),))).over_s is None


def test_still_short_at_the_end_is_said_in_the_first_line() -> None:
    """O4: a hold that is not over does not look like one that is."""
    away = replace(SHORT, until_s=None, at_end=3)
    outcome = judge(replace(CALM, interrupted=(away,)))
    assert (outcome.verdict, outcome.over_s) == (KEPT, None)
    assert outcome.answer.startswith("HOLDS, but not over:")
    assert "Deployment shop/web (3 of 5)" in outcome.answer


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"breaches": (BREACH,)}, "PodDisruptionBudget shop/web: budget, 2 instead of at least 4, for 1:03"),
        ({"regions": (replace(TOLL, without_quorum=20, without_quorum_s=90.0),)}, "20 of 300 regions lose"),
        ({"regions": (replace(TOLL, without_quorum=20, left_without_quorum=20),)}, "to the end"),
        ({"regions": (replace(TOLL, cut_off=("demo-tikv-1 had 7 leaders",)),)}, "demo-tikv-1 had 7 leaders"),
        ({"regions": (replace(TOLL, away_at_once=2),)}, "2 members away at once"),
        ({"gone": (replace(LOST, noticed=True),)}, "1 pod cut off when s1 went, in spite of the notice"),
        ({"unplaced": (WAITS, WAITS)}, "2 pods find no room"),
        ({"broken_limits": ("store/4 at 28 of 20",)}, "the queue: store/4 at 28 of 20"),
        (
            {"names": ("restart",), "regions": (replace(TOLL, without_leader=7, without_leader_s=12.0),)},
            "7 regions without a leader for 0:12",
        ),
    ],
)
def test_each_broken_promise_breaks_the_verdict_and_is_named(seen: dict[str, object], words: str) -> None:
    """O4: what must not happen is the first line when it does."""
    outcome = judge(replace(CALM, **seen))
    assert outcome.verdict == BROKEN
    assert len(outcome.broken) == 1
    assert words in outcome.answer


@pytest.mark.parametrize(
    "seen",
    [
        {"regions": (replace(TOLL, without_leader=100, without_leader_s=15.0),)},
        {"gone": (LOST,)},
        {"unplaced": (replace(WAITS, lacks="pinned"),)},
    ],
)
def test_what_a_lost_machine_takes_along_is_told_and_not_blamed(seen: dict[str, object]) -> None:
    """O4: elections after a rack is lost, its pods, and volumes that were on it are no broken promises."""
    assert judge(replace(CALM, **seen)).verdict == KEPT


def test_the_worst_comes_first_and_the_rest_is_counted() -> None:
    """O4: what lasts to the end before what ends, the longest first."""
    lasting = replace(BREACH, subject="StatefulSet data/db", promise="quorum", until=None, seconds=10.0)
    outcome = judge(replace(CALM, breaches=(BREACH, lasting)))
    assert outcome.broken[0].startswith("StatefulSet data/db")
    assert outcome.answer.endswith("(and 1 more)")


UNKNOWN = NotPlayed(owner="Rollout shop/web", lost=4, before=4)


def test_an_owner_that_nobody_plays_is_the_first_line() -> None:
    """O4: no false comfort: a Rollout that lost its pods is neither kept nor broken; its kind and name come first."""
    outcome = judge(replace(CALM, not_played=(UNKNOWN,)))
    assert outcome.verdict == "cannot-tell"
    assert outcome.answer == "CANNOT TELL: Rollout shop/web loses 4 of 4 pods, and its controller is not played"
    both = judge(replace(CALM, not_played=(UNKNOWN, UNKNOWN), breaches=(BREACH,)))
    assert both.verdict == "broken"
    assert both.answer.endswith("for 1:03; CANNOT TELL for Rollout shop/web (and 1 more)")


def test_a_pd_that_nobody_asked_is_in_the_first_line() -> None:
    """O4: without PD's data, regions are assumed, and line 1 says so whatever the verdict."""
    seen = replace(CALM, assumed_pds=("tidb/demo",), regions=(TOLL,))
    assert judge(seen).answer == "HOLDS (PD assumed): no pod is interrupted"
    assert judge(replace(seen, breaches=(BREACH,))).answer.startswith("BROKEN (PD assumed): ")
    assert not any("leader throughout" in line for line in render(judge(seen)))


def test_a_pod_without_an_owner_that_is_lost_is_in_the_first_line() -> None:
    """O4: nobody makes it again: not `nobody is interrupted`."""
    outcome = judge(replace(CALM, lost_for_good=("shop/bare",)))
    assert outcome.answer == "HOLDS, but 1 pod without an owner is lost for good: shop/bare"


def test_a_lost_pod_without_an_owner_is_in_the_first_line_of_every_verdict() -> None:
    """O4: what is broken comes first, then what nobody recreates; a workload still short does not hide it."""
    said = "2 pods without an owner are lost for good: shop/bare (and 1 more)"
    lost = replace(CALM, lost_for_good=("shop/bare", "shop/more"))
    assert judge(replace(lost, broken_limits=("store/4 at 28 of 20",))).answer.endswith(f"store/4 at 28 of 20; {said}")
    unknown = NotPlayed(owner="Job shop/j", lost=1, before=1)
    assert judge(replace(lost, not_played=(unknown,))).answer == f"CANNOT TELL: {unknown.words}; {said}"
    away = judge(replace(lost, interrupted=(replace(SHORT, until_s=None),))).answer
    assert away.startswith("HOLDS, but not over: ") and away.endswith(f"; {said}")
