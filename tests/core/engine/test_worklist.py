"""What the worklist promises: each key once, in the order they came, and what may wait does not wait for ever."""

from mooring.core.engine.schedule import LATER_S, WorkList
from mooring.core.model.decision import Deferred


def all_looks(worklist):
    return list(iter(worklist.next_evaluation, None))


def test_what_may_wait_is_looked_at_when_its_time_has_come():
    """A look that may wait is not pending; it names its wake-up, and then comes with the first cause."""
    worklist = WorkList()
    worklist.affect("mix", Deferred("a"), "bound", 10.0)
    worklist.affect("mix", Deferred("a"), "started", 11.0)
    worklist.affect("mix", Deferred("b"), "bound", 11.5)
    assert not worklist.pending
    assert worklist.next_wake() == 10.0 + LATER_S
    worklist.ripen(10.0 + LATER_S)
    assert all_looks(worklist) == [(("mix", "a"), "bound")]
    assert worklist.next_wake() == 11.5 + LATER_S


def test_a_look_that_comes_by_is_the_only_one():
    """Whoever is looked at for another reason need not be looked at again for what could wait."""
    worklist = WorkList()
    worklist.affect("mix", Deferred("a"), "bound", 10.0)
    worklist.affect("mix", "a", "ready", 10.3)
    assert all_looks(worklist) == [(("mix", "a"), "ready")]
    assert worklist.next_wake() is None
    worklist.ripen(100.0)
    assert not worklist.pending


def test_the_nearest_time_wakes():
    """Wake-ups that were asked for and looks that may wait share one alarm."""
    worklist = WorkList()
    worklist.wake_at(11.0, ("mix", "a"))
    worklist.affect("mix", Deferred("b"), "bound", 10.0)
    assert worklist.next_wake() == 11.0
    assert list(worklist.due(11.0)) == [("mix", "a")]
    assert worklist.next_wake() == 10.0 + LATER_S
