"""Sixty fixed seeds of the whole (O5): short runs, every promise checked; a third of them in `make test`."""

import pytest

from mooring_lab.simulate.seeds import SeedOptions, replay_command, run_seed

#: Six virtual minutes of load each; `make sim` plays more and longer ones.
OPTIONS = SeedOptions(hours=0.1)


def play(seed: int) -> None:
    result = run_seed(seed, OPTIONS)
    assert result.failure is None, "\n".join([*result.timeline[-40:], replay_command(seed, OPTIONS)])


@pytest.mark.parametrize("seed", [*range(1, 21), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(21, 61))])
def test_fixed_seed(seed):
    """O5: these never change, so a failure is a change of ours."""
    play(seed)
