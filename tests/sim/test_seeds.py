"""Sixty fixed seeds and twenty fresh ones of the whole (O5): short runs, every promise checked."""

import datetime as dt
import random

import pytest

from mooring.sim.whole.seeds import Options, replay_command, run_seed

#: Six virtual minutes of load each; `make sim` plays more and longer ones.
OPTIONS = Options(hours=0.1)
FIXED = range(1, 61)
#: Others every day, and the same for everybody on one day: a failure can be talked about.
FRESH = sorted(random.Random(dt.datetime.now(dt.UTC).strftime("%Y-%m-%d")).sample(range(1_000, 1_000_000), 20))


def play(seed: int) -> None:
    result = run_seed(seed, OPTIONS)
    assert result.failure is None, "\n".join([*result.timeline[-40:], replay_command(seed, OPTIONS)])


@pytest.mark.parametrize("seed", FIXED)
def test_fixed_seed(seed):
    """O5: these never change, so a failure is a change of ours."""
    play(seed)


def test_fresh_seeds():
    """O5: others every day; the message of a failure names the seed and the command that replays it."""
    for seed in FRESH:
        play(seed)
