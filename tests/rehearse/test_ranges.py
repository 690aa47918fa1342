"""One event with many seeds: a range per workload."""

from mooring.core.model.kinds import Kind
from mooring.core.model.times import clock
from mooring.process.assemble import capacity_rules
from mooring.process.settings.config import Config
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.kubelet import READY, SLOWEST, START
from mooring_lab.cluster.randomness import SeededRandomness
from mooring_lab.rehearse.events.catalog import Options, acts
from mooring_lab.rehearse.outcome import Interrupted, RehearsalOutcome
from mooring_lab.rehearse.play import Play, everything_on, rehearse
from mooring_lab.rehearse.snapshot.schema import Snapshot
from mooring_lab.rehearse.sweep.forks import play_usual_and_slowest
from mooring_lab.rehearse.sweep.ranges import Run, over, ranges, render
from tests.rehearse.test_play import taken

CONFIG = everything_on(Config())


def _run(seed: int, away_s: float | None, verdict: str = "kept") -> Run:
    short = Interrupted(
        workload="Deployment shop/web",
        wanted=5,
        before=5,
        worst=5 - seed,
        away_s=away_s or 0.0,
        from_s=0.0,
        until_s=away_s,
        at_end=5,
    )
    found = () if away_s is None else (short,)
    return Run(seed=seed, verdict=verdict, answer=verdict.upper(), interrupted=found, played_s=60.0)


def test_a_range_has_the_worst_the_median_and_the_best_and_line_1_is_the_worst() -> None:
    """O4: a draw in which it was not short counts as none."""
    found = over(("node n1 is lost",), [_run(1, 10.0), _run(2, None), _run(3, 90.0, "broken"), _run(4, 40.0)])
    (row,) = found.workloads
    assert (row.short_s.worst, row.short_s.median, row.short_s.best) == (90.0, 10.0, 0.0)
    assert (row.lowest.worst, row.lowest.best) == (1, 5)
    assert (found.verdict, found.verdicts) == ("broken", {"broken": 1, "kept": 3})
    assert found.answer == "BROKEN (seed 3, and 0 of 3 others)"
    assert any("1:30 / 0:10 / 0:00" in line for line in render(found))


def test_a_seed_that_could_not_be_played_is_no_comfort() -> None:
    """O4: all others kept, one not known: cannot tell."""
    assert over(("x",), [_run(1, None)], ["seed 2: died"]).verdict == "cannot-tell"


def test_each_seed_comes_out_as_it_does_alone_and_seeds_differ(demo: Snapshot) -> None:
    """O4: the scheduler's ties are drawn by seed; the same seed draws the same."""
    planned = acts(["spot-gone"], demo, capacity_rules(CONFIG), Options(unannounced=True))
    found = ranges(Play(demo, planned, CONFIG, seed=1, limit_s=1800.0), planned, range(1, 4), 2)
    assert [run.seed for run in found.runs] == [1, 2, 3]
    alone = {seed: rehearse(demo, planned, CONFIG, seed=seed) for seed in (1, 2, 3)}
    for run in found.runs:
        assert (run.answer, run.interrupted) == (alone[run.seed].answer, alone[run.seed].played.interrupted)
    homes = [tuple((one.pod, one.node) for one in outcome.played.come) for outcome in alone.values()]
    assert len(set(homes)) > 1


def test_ties_are_drawn_among_equal_nodes_alone() -> None:
    """O4: never onto a node with less room while a better one is there."""
    seen = set()
    for seed in range(2, 12):
        cluster = Cluster(seed=1)
        cluster.scheduler.draw_ties(SeededRandomness(seed))
        cluster.add_nodes(3, "n", cpu="16", memory="64Gi")
        cluster.add_node("small", cpu="2", memory="4Gi")
        cluster.deployment("shop", "web", 1)
        cluster.run_until_stable()
        seen |= {pod["spec"]["nodeName"] for pod in cluster.pods("shop", "web")}
    assert seen == {"n0", "n1", "n2"}


def _two_nodes(annotations: dict[str, str] | None) -> Snapshot:
    """Both pods on n0; `annotations` on the template: how long they took to start. None: nothing is known."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(2, prefix="n")
    cluster.cordon("n1")
    cluster.deployment("shop", "web", 2)
    cluster.run_until_stable()
    cluster.cordon("n1", on=False)
    snapshot = taken(cluster)
    for kind in (Kind.DEPLOYMENT, Kind.REPLICA_SET):
        for obj in snapshot.of(kind):
            obj["spec"]["template"]["metadata"]["annotations"] = dict(annotations or {})
    return snapshot


def _with_slow_starts(snapshot: Snapshot) -> RehearsalOutcome:
    planned = acts(["node-lost", "n0"], snapshot, capacity_rules(CONFIG), Options())
    return play_usual_and_slowest(Play(snapshot, planned, CONFIG, seed=1, limit_s=1800.0), planned, 1)


def test_where_starts_took_more_or_less_long_the_verdict_says_what_the_slowest_would_mean() -> None:
    """O4: usually 10 s, once 50 s: the second figure is 40 s later, and both are of the same event."""
    outcome = _with_slow_starts(_two_nodes({START: "10", READY: "0", SLOWEST: "50"}))
    assert outcome.slowest is not None and outcome.over_s is not None and outcome.slowest.over_s is not None
    assert outcome.slowest.over_s - outcome.over_s == 40.0
    after = clock(outcome.slowest.over_s)
    assert outcome.answer.endswith(f"; with the slowest start times of the snapshot over after {after}")
    assert outcome.played.remarks == ()


def test_a_start_time_that_nothing_tells_is_assumed_and_said() -> None:
    """O4: no pod of the workload tells how long it took: 3 s, and up to a minute, neither in silence."""
    outcome = _with_slow_starts(_two_nodes(None))
    assert outcome.slowest is not None and "with the slowest start times" in outcome.answer
    words = "the pods of Deployment shop/web do not tell how long they took to start: 3 s is assumed"
    assert words in outcome.played.remarks


def test_where_all_starts_took_alike_it_is_played_once() -> None:
    """O4: nothing to add to the verdict."""
    assert _with_slow_starts(_two_nodes({START: "10", READY: "0"})).slowest is None
