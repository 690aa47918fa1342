"""The one way in which the tests on the real control plane wait: `tests/e2e/waiting.py`."""

import subprocess
import sys
import time

import pytest

from tests.e2e.waiting import CAP_S, LIMIT_S, LOOK_S, Patience, Stopwatch, starved_s


class Clock:
    def __init__(self):
        self.s = 0.0

    def __call__(self):
        return self.s


def ends_at(told):
    """When patience ends, looked at every second, for what is told at that second."""
    clock = Clock()
    patience = Patience("the pod", tell=lambda: told(clock.s), now=clock)
    while clock.s < 2 * CAP_S:
        clock.s += 1
        try:
            patience.look()
        except AssertionError as failed:
            return clock.s, str(failed)
    raise AssertionError("it waited for ever")


def test_what_stands_still_is_waited_for_no_longer_than_the_limit_after_the_first_look():
    """And the failure says what, for how long, and the last state."""
    at, words = ends_at(lambda _: "Pending")
    assert at == LOOK_S + LIMIT_S
    assert words.startswith("the pod did not come to hold in 225 s, the last 180 s without any change")
    assert "Pending" in words


def test_the_limit_starts_again_whenever_the_state_changes():
    at, words = ends_at(lambda s: f"{min(s, 400) // 40:.0f} Ready")
    assert 400 + LIMIT_S <= at < CAP_S
    assert "10 Ready" in words


def test_what_changes_for_ever_ends_all_the_same():
    at, _ = ends_at(str)
    assert at == pytest.approx(CAP_S, abs=LOOK_S)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone counts how long a process waits for a processor")
def test_a_stopwatch_leaves_out_what_a_process_waited_for_a_processor():
    """Two that spin on one processor take turns: half of the time is not theirs. One that sleeps waits for nobody."""
    spin = (
        "import os, time; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(flush=True)\nwhile True: pass"
    )
    spinning = [subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) for _ in range(2)]
    sleeping = subprocess.Popen(["sleep", "60"])
    try:
        for one in spinning:
            one.stdout.readline()
        watch, asleep, began = Stopwatch(spinning[0].pid), starved_s(sleeping.pid), time.monotonic()
        while starved_s(spinning[0].pid) < 0.3:
            spinning[1].poll()
        gone_s = time.monotonic() - began
        assert watch.took_s() <= gone_s - 0.2
        assert starved_s(sleeping.pid) - asleep < 0.05
    finally:
        for one in (*spinning, sleeping):
            one.kill()
            one.communicate()
