"""No test sleeps on the wall clock, and the guard that sees to it can fail."""

import asyncio
import time

import pytest

from mooring_lab.cluster.clock import Timeline, run_virtual


async def test_a_test_that_sleeps_is_told_so():
    with pytest.raises(AssertionError, match="sleeps 3 s on the wall clock"):
        time.sleep(3)
    with pytest.raises(AssertionError, match="sleeps 3 s on the wall clock"):
        await asyncio.sleep(3)


def test_in_virtual_time_one_may_sleep_as_long_as_one_likes():
    timeline = Timeline()

    async def an_hour():
        await asyncio.sleep(3600)

    run_virtual(an_hour, timeline)
    assert timeline.now() >= 3600
