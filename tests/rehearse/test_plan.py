"""The plan per object, and what got worse between two sweeps."""

from pathlib import Path

import msgspec
import pytest

from mooring_lab.rehearse.observer import Come, GonePod, StuckPod
from mooring_lab.rehearse.plan import last_line, moves, render
from mooring_lab.rehearse.snapshot.schema import Snapshot
from mooring_lab.rehearse.sweep.report import BadBaselineError, compare, markdown, read
from mooring_lab.rehearse.sweep.sweep import Sweep, collect
from tests.rehearse.test_outcome import CALM, WAITS, replace
from tests.rehearse.test_play import play
from tests.rehearse.test_sweep import LINE, _found

WEB, DB = "Deployment shop/web", "StatefulSet data/db"


def gone(pod: str, workload: str, at_s: float = 0.0) -> GonePod:
    return GonePod(at_s=at_s, pod=pod, workload=workload, node="n1", how="lost")


def test_each_pod_that_goes_has_its_fate() -> None:
    """O4: moved to, blocked by, lost: one row each, with a reason a script can read."""
    played = replace(
        CALM,
        gone=(gone("shop/web-a", WEB), gone("shop/web-b", WEB), gone("data/db-0", DB), gone("shop/bare", "")),
        come=(Come(at_s=42.0, pod="shop/web-c", workload=WEB, node="n2"),),
        stuck=(StuckPod(pod="data/db-0", workload=DB, node="n1"),),
        unplaced=(WAITS,),
    )
    plan = moves(played)
    assert [(one.pod, one.reason, one.to_node or one.blocked_by, one.away_s) for one in plan] == [
        ("shop/web-a", "moves", "n2", 42.0),
        ("shop/web-b", "no-room", "Insufficient cpu", None),
        ("data/db-0", "waits-for-machine", "node/n1", None),
        ("shop/bare", "lost-for-good", "", None),
    ]
    assert last_line(plan, 2, 1) == (
        "4 pods go: 1 move, 1 wait for their machine, 1 find no room, 1 are lost for good"
        " · 2 workloads short · 1 promise broken"
    )
    assert last_line(plan[:1], 1, 0) == "1 pod goes: 1 move · 1 workload short · 0 promises broken"


def test_alike_pods_are_one_row_and_counts_equal_what_happened(demo: Snapshot) -> None:
    """O4: every pod that went is in the plan once, and those that came are where it says."""
    outcome = play(demo, "rack-lost 2")
    assert len(outcome.plan) == len(outcome.played.gone)
    moved = [one for one in outcome.plan if one.reason == "moves"]
    assert sorted(one.to_node for one in moved) == sorted(one.node for one in outcome.played.come)
    rows = list(render(outcome.plan))
    assert any(
        "StatefulSet tidb/demo-tidb: demo-tidb-1 from n5: waits-for-machine, blocked by node/n5" in r for r in rows
    )
    assert len(rows) < len(list(render(outcome.plan, everything=True)))


def swept(demo: Snapshot, *found: object) -> Sweep:
    return collect(demo, [failure for failure, _ in found], found)  # type: ignore[misc, arg-type]


def test_only_what_got_worse_is_news(demo: Snapshot) -> None:
    """O7: the same breach is none; a longer one, one by more events, or one to the end is."""
    before = swept(demo, _found("node-lost a", LINE))
    assert not compare(before, before).is_worse
    slightly = msgspec.structs.replace(LINE, seconds=63.0)
    assert not compare(swept(demo, _found("node-lost a", slightly)), before).is_worse
    for breach in (
        msgspec.structs.replace(LINE, seconds=90.0),
        msgspec.structs.replace(LINE, to_the_end=True),
        msgspec.structs.replace(LINE, promise="budget"),
    ):
        assert compare(swept(demo, _found("node-lost a", breach)), before).is_worse
    more = swept(demo, _found("node-lost a", LINE), _found("node-lost b", LINE))
    assert compare(more, before).is_worse
    assert compare(before, more).is_worse is False
    unknown = swept(demo, _found("node-lost a", LINE), _found("node-lost b", verdict="cannot-tell"))
    assert compare(unknown, before).unknown == ("node-lost b",)


def test_the_report_for_a_pull_request_is_short(demo: Snapshot) -> None:
    """O7: what is new in a table, the rest in a count; what was fixed is said."""
    before = swept(demo, _found("node-lost a", LINE))
    now = swept(demo, _found("node-lost b", msgspec.structs.replace(LINE, object="Deployment shop/web")))
    lines = markdown(now, compare(now, before))
    assert lines[0] == "### Rehearsal: worse"
    assert "| Deployment shop/web | quorum | for 1:00 | `node-lost b` | would fix it: spread it |" in lines
    assert "- fixed: StatefulSet data/db: quorum" in lines
    assert lines[-1] == "- 1 played: 0 kept, 1 broken, 0 cannot tell; 0 broken promises as before"


def test_a_baseline_that_is_none_is_told(tmp_path: Path) -> None:
    """O7: what is wrong, and how to make one."""
    other = tmp_path / "other.json"
    for body in ("{}", "x"):
        other.write_text(body)
        with pytest.raises(BadBaselineError, match="mooring rehearse sweep"):
            read(other)
    with pytest.raises(BadBaselineError, match="No such file"):
        read(tmp_path / "nothing.json")
