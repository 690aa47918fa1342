"""Worked example 4 of the one queue: what waits behind a reservation starts neither early nor late, and says why."""

from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason
from mooring.core.queue import Promoted, Queue, live_settings

FOUR, ONE = "store/tidb/demo/4", "store/tidb/demo/1"


def operator(number, source, **cost):
    targets = {"four": FOUR, "one": ONE}
    return Operator(
        id=str(number),
        source=source,
        kind="move",
        subject=f"region/tidb/demo/{number}",
        phases=({targets[name]: amount for name, amount in cost.items()},),
    )


def promoted(events):
    return [event.id for event in events if isinstance(event, Promoted)]


def queue_with_store_4_half_used_and_half_reserved():
    """An eviction runs on store 4; a move that needs 10 there waits for store 1, which another one fills."""
    queue = Queue(live_settings(), 0.0)
    assert promoted(queue.submit(operator(1, "handoff", four=10))) == ["1"]
    assert promoted(queue.submit(operator(2, "balance-region", one=20))) == ["2"]
    assert promoted(queue.submit(operator(3, "balance-region", four=10, one=10))) == []
    assert promoted(queue.submit(operator(4, "replica", four=10))) == []
    return queue


def test_worked_example_4_it_waits_behind_what_is_reserved_and_says_so():
    """T4, T11: 10 of 20 used, 10 reserved: `behind`, with the sum and both names."""
    queue = queue_with_store_4_half_used_and_half_reserved()
    why = queue.why("4")
    assert why is not None
    assert why.reason is Reason.BEHIND
    assert why.sum() == "needs 10 · used 10 (op 1: 10) · reserved 10 · limit 20 → 10 missing"
    assert why.blocked_by == ("1", "3")


def test_worked_example_4_it_starts_when_the_eviction_ends():
    """T7: what was used is free; what is reserved stays so for the one ahead."""
    queue = queue_with_store_4_half_used_and_half_reserved()
    assert promoted(queue.finish("1")) == ["4"]
    assert promoted(queue.finish("2")) == ["3"], "and the one ahead starts no later for it"


def test_worked_example_4_it_starts_when_the_move_ahead_ends_and_not_before():
    """T4: the move ahead begins first, in order of arrival; only its end makes room."""
    queue = queue_with_store_4_half_used_and_half_reserved()
    assert promoted(queue.finish("2")) == ["3"]
    assert queue.why("4") is not None
    assert queue.why("4").reason is Reason.TARGET_FULL
    assert promoted(queue.finish("3")) == ["4"]
