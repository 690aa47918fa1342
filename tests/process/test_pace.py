"""How the pump shares the loop with admission."""

from mooring.process.admission.reviewer import MANY, WINDOW_S, AdmissionLoad
from mooring.process.shell import LONGEST_REST_S, REST, RUSH_REST, SLICE_S, TurnPace


class Hand:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at


def test_small_looks_go_on_slice_by_slice():
    """Many small looks: a slice each turn, at least one look in it, and no rest in between."""
    clock = Hand()
    pace = TurnPace(clock, 0.0)
    looks = 0
    while not pace.enough():
        looks += 1
        clock.at += SLICE_S / 2
    assert looks == 2
    assert pace.rest_until() == clock.at


def test_a_long_look_is_paid_back():
    """One look that takes long: nothing is decided for a multiple of it, and then again at least one look is."""
    clock = Hand()
    pace = TurnPace(clock, 0.0)
    assert not pace.enough()
    clock.at += SLICE_S + 0.02
    assert pace.enough()
    until = pace.rest_until()
    assert abs(until - (clock.at + REST * 0.02)) < 1e-9
    resting = TurnPace(clock, until)
    assert resting.enough()
    assert resting.rest_until() == until
    clock.at = until
    assert not TurnPace(clock, until).enough()


def test_a_rest_is_bounded():
    """However long a look took, a notice is not kept waiting for long."""
    clock = Hand()
    pace = TurnPace(clock, 0.0)
    pace.enough()
    clock.at += 10
    assert pace.rest_until() == clock.at + LONGEST_REST_S


def test_in_a_rush_every_slice_is_paid_back():
    """M4: while hundreds of pods a second are admitted, deciding gets a small part of the loop; and never none."""
    clock = Hand()
    pace = TurnPace(clock, 0.0, rush=True)
    assert not pace.enough()
    clock.at += SLICE_S
    assert abs(pace.rest_until() - (clock.at + RUSH_REST * SLICE_S)) < 1e-9
    pace = TurnPace(clock, 0.0, rush=True)
    pace.enough()
    clock.at += 10
    assert pace.rest_until() == clock.at + LONGEST_REST_S


def test_a_rush_is_many_in_a_short_time():
    """A few admissions slow nobody down; a rush is known within a tenth of a second, lasts as long as it lasts and no
    longer."""
    clock = Hand()
    rush = AdmissionLoad(clock.monotonic)
    assert not rush.is_on()
    for _ in range(100):
        clock.at += WINDOW_S / (MANY / 2)
        rush.asked()
        assert not rush.is_on()
    for number in range(MANY * 10):
        clock.at += WINDOW_S / (MANY * 2)
        rush.asked()
        assert rush.is_on() or number < MANY * 2
    clock.at += 2 * WINDOW_S
    assert not rush.is_on()
    clock.at += 60
    rush.asked()
    assert not rush.is_on()
