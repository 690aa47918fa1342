"""How far a figure fell and for how long."""

from hypothesis import given
from hypothesis import strategies as st

from mooring.core.model.times import clock
from mooring_lab.judge.lines import Meter, below_line, columns, majority


def test_a_figure_that_falls_and_comes_back_is_one_span() -> None:
    """O4: from the moment it is below its line until the moment it is not, with the lowest in between."""
    meter = Meter(3, 5)
    assert [meter.step(at, value) for at, value in ((1.0, 4), (2.0, 2), (5.0, 1), (9.0, 3))] == ["", "fell", "", "back"]
    (span,) = meter.close(20.0)
    assert (span.from_s, span.until_s, span.worst) == (2.0, 9.0, 1)
    assert meter.seconds(20.0) == 7.0
    assert (meter.before, meter.worst, meter.value) == (5, 1, 3)


def test_a_span_that_has_not_ended_is_counted_until_now_and_has_no_end() -> None:
    """O4: what is still missing at the end is told as such."""
    meter = Meter(2, 2)
    meter.step(10.0, 0)
    found = below_line("quorum", "StatefulSet data/db", meter, 40.0)
    assert found is not None
    assert (found.since, found.until, found.seconds, found.worst) == (10.0, None, 30.0, 0)
    assert "to the end" in found.words


def test_what_was_missing_before_is_not_blamed_on_the_event() -> None:
    """O4: a workload that was below its line already is held to what it had."""
    meter = Meter(5, 3)
    assert meter.step(1.0, 3) == ""
    assert below_line("budget", "x", meter, 9.0) is None
    assert meter.step(2.0, 2) == "fell"
    assert (meter.least, meter.asked) == (3, 5)


def test_a_dip_within_one_instant_is_no_interruption() -> None:
    """O4: a pod that goes in the moment another comes interrupts nobody."""
    meter = Meter(3, 3)
    meter.step(4.0, 2)
    meter.step(4.0, 3)
    assert meter.close(9.0) == ()


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 6)), max_size=40), st.integers(0, 6))
def test_spans_are_ordered_disjoint_and_add_up(steps: list[tuple[int, int]], least: int) -> None:
    """O4: the time below the line equals what a plain count of seconds says."""
    meter, at, below, value = Meter(least, 6), 0, 0, 6
    for wait, new in steps:
        below += wait if value < meter.least else 0
        at, value = at + wait, new
        meter.step(float(at), value)
    assert meter.seconds(float(at)) == below
    ends = [edge for span in meter.close(float(at)) for edge in (span.from_s, span.until_s or at)]
    assert ends == sorted(ends)


def test_times_and_majorities_read_as_people_say_them() -> None:
    """O4: 0:42, 12:05, 1:02:30; more than half."""
    assert [clock(s) for s in (0, 42.4, 725, 3750)] == ["0:00", "0:42", "12:05", "1:02:30"]
    assert [majority(n) for n in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]


def test_a_table_without_room_is_told_row_by_row() -> None:
    """O4: at sixty columns a table is not torn at its words: each row is a block, a line for each of its cells."""
    rows = [
        ("WORKLOAD", "WANTED", "SHORT FOR"),
        ("Deployment shop/web", "5", "6:28"),
        ("Deployment shop/api", "3", "–"),
    ]
    assert columns(rows, 60) == columns(rows)
    assert columns(rows, 30) == [
        "  workload   Deployment shop/web",
        "  wanted     5",
        "  short for  6:28",
        "",
        "  workload   Deployment shop/api",
        "  wanted     3",
        "  short for  –",
    ]
