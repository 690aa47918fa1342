"""How the pump shares the loop with admission."""

from mooring.run.shell import LONGEST_REST_S, REST, SLICE_S, Pace


class Hand:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at


def test_small_looks_go_on_slice_by_slice():
    """Many small looks: a slice each turn, at least one look in it, and no rest in between."""
    clock = Hand()
    pace = Pace(clock, 0.0)
    looks = 0
    while not pace.enough():
        looks += 1
        clock.at += SLICE_S / 2
    assert looks == 2
    assert pace.rest_until() == clock.at


def test_a_long_look_is_paid_back():
    """One look that takes long: nothing is decided for a multiple of it, and then again at least one look is."""
    clock = Hand()
    pace = Pace(clock, 0.0)
    assert not pace.enough()
    clock.at += SLICE_S + 0.02
    assert pace.enough()
    until = pace.rest_until()
    assert abs(until - (clock.at + REST * 0.02)) < 1e-9
    resting = Pace(clock, until)
    assert resting.enough()
    assert resting.rest_until() == until
    clock.at = until
    assert not Pace(clock, until).enough()


def test_a_rest_is_bounded():
    """However long a look took, a notice is not kept waiting for long."""
    clock = Hand()
    pace = Pace(clock, 0.0)
    pace.enough()
    clock.at += 10
    assert pace.rest_until() == clock.at + LONGEST_REST_S
