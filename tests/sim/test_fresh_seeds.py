"""Fresh seeds of the whole (O5): others every day, and the same for everybody on one day, so that a failure can be discussed."""

import datetime as dt
import os
import random

import pytest

from tests.sim.test_seeds import play

#: CI plays 100.
COUNT = int(os.environ.get("MOORING_FRESH_SEEDS", "20"))
DAY = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d")


@pytest.mark.parametrize("seed", random.Random(DAY).sample(range(1_000, 1_000_000), COUNT))
def test_fresh_seed(seed):
    """O5: the message of a failure has the command that replays it."""
    play(seed)
