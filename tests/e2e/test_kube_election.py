"""Leader election between real processes on a real API server: kill -9, a clean stop, a frozen leader."""

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.e2e.waiting import Stopwatch, until

pytestmark = pytest.mark.e2e

CANDIDATE = """
import asyncio, random, signal, sys, time
from mooring.clients.kube import HttpKubeApi, load
from mooring.process.clock import WallClock
from mooring.process.lease.elector import Elector

class Randomness(random.Random):
    def token(self, length=8):
        return "x" * length

async def main(kubeconfig, namespace, identity):
    def say(word):
        print(word, flush=True)
    async def stopped():
        say("stopped")
    async with HttpKubeApi(load(kubeconfig)) as api:
        elector = Elector(api, WallClock(), Randomness(), namespace=namespace, name="mooring", identity=identity,
                          on_started=lambda: say("started"), on_stopped=stopped)
        task = asyncio.create_task(elector.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async def tell():
            while not elector.holder:
                await asyncio.sleep(0.05)
            say("follows" if not elector.leading else "leads")
            # At most one process may ever say this in any half second.
            while True:
                now = time.monotonic()  # it may be frozen at any line
                if elector.may_write():
                    say(f"may-write {now}")
                await asyncio.sleep(0.05)
        telling = asyncio.create_task(tell())
        try:
            await task
        except asyncio.CancelledError:
            telling.cancel()

asyncio.run(main(*sys.argv[1:]))
"""


class Candidate:
    def __init__(self, lab, namespace, identity):
        self.identity = identity
        self.words: queue.Queue[str] = queue.Queue()
        self.wrote: list[float] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", CANDIDATE, str(lab.kubeconfig), namespace, identity],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            word, *when = line.split()
            if word == "may-write":
                self.wrote.append(float(when[0]))
            elif word in ("started", "stopped", "follows"):
                self.words.put(word)

    def wait_for(self, word, within_s=300):
        """Seconds until it said so."""
        began = time.monotonic()
        with contextlib.suppress(queue.Empty):
            while time.monotonic() - began < within_s:
                if self.words.get(timeout=max(0.01, began + within_s - time.monotonic())) == word:
                    return time.monotonic() - began
        raise AssertionError(f"{self.identity} did not say {word} within {within_s} s")

    def end(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.ended()

    def ended(self):
        self.process.wait(120)
        self._reader.join(10)
        self.process.stdout.close()


@pytest.fixture
def candidates(lab):
    namespace, all_ = lab.namespace("election"), []

    def start(identity):
        all_.append(Candidate(lab, namespace, identity))
        return all_[-1]

    start.namespace = namespace
    yield start
    for candidate in all_:
        if candidate.process.poll() is None:
            os.kill(candidate.process.pid, signal.SIGCONT)
            candidate.end()
    lab.kubectl("delete", "namespace", namespace, "--wait=false")


def lease(lab, namespace):
    return json.loads(lab.kubectl("get", "lease", "mooring", "-n", namespace, "-o", "json"))["spec"]


def test_fail_over_after_kill_and_after_a_clean_stop(lab, candidates):
    """Under 15 s after kill -9, under 3 s after SIGTERM, and the lease tells who holds it."""
    numbers = itertools.count(1)
    leader = candidates("0")
    leader.wait_for("started")

    def fail_over(how):
        nonlocal leader
        old, leader = leader, candidates(str(next(numbers)))
        leader.wait_for("follows")  # it has to have seen the holder, as a follower of long standing has
        watch = Stopwatch(leader.process.pid, *(lab.pids()[name] for name in ("etcd", "kube-apiserver")))
        old.process.send_signal(how)
        leader.wait_for("started")
        took = watch.took_s()
        old.ended()
        assert old.process.returncode == (0 if how == signal.SIGTERM else -how)
        assert lease(lab, candidates.namespace)["holderIdentity"] == leader.identity
        return took

    killed, stopped = fail_over(signal.SIGKILL), fail_over(signal.SIGTERM)
    assert killed < 15
    assert stopped < 3
    assert lease(lab, candidates.namespace)["leaseTransitions"] >= 2
    print(f"fail-over: {killed:.1f} s after kill -9, {stopped:.1f} s after a clean stop")


def test_a_leader_that_was_frozen_does_not_write_when_it_wakes_up(lab, candidates):
    """SIGSTOP for longer than the lease: another leads; the old one wakes up, may not write, and says it stopped."""
    first = candidates("first")
    first.wait_for("started")
    second = candidates("second")
    second.wait_for("follows")
    os.kill(first.process.pid, signal.SIGSTOP)
    second.wait_for("started")
    os.kill(first.process.pid, signal.SIGCONT)
    first.wait_for("stopped")
    until(lambda: second.wrote, "the second may write")
    time.sleep(1)
    took_over = min(second.wrote)
    assert not [t for t in first.wrote if t >= took_over]
