"""What the black box costs: CPU at 2,500 events a second with and without it, in one run, and its longest pauses.

    python -m bench blackbox

The replica of `bench.spine`: 5,000 nodes, 150,000 pods, it leads and every capability is on. Its events come as in a
cluster, from a server of their own, by a watch over TLS on loopback. Each step of fifty is recorded or not as a coin
falls, so that whatever else the machine does falls on both. What the loop's thread takes more with recording is the
difference of the medians of a round. What is not spread evenly over the events is measured by itself and added: making
records of each 1,000 events, the thread that compresses and writes, and the share of an event in a checkpoint (with it,
in naming each pod once in the part that it begins), at the interval that follows from the default size and the bytes of
an event. Sixteen rounds: their median, and the least and most. The garbage collector has the settings of a replica, the
same on both sides.

A pause is what one call of the recorder took of the loop's thread: the lists at the start, ordinary turns, copying a
checkpoint, and writing it. It is CPU time, or by the clock where that is less. A virtual machine books what it was not
given on whoever ran, tens of milliseconds at a time, so each of these is played four times with the same events: a
call that is long because of what it does is long at that place each time, and counts with the least that it took. The
baseline is the longest of all calls, with what the machine added.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench._watch import EVENTS, watching

#: Rounds, and events in a step.
ROUNDS = 16
STEP = 50
RATE = 2_500
#: How often what has pauses is played, and into how many places a play is divided.
PLAYS = 4
PLACES = 40


def main() -> None:
    found = child("child")
    found["lists"] = [found["lists"], *(child("lists")["lists"] for _ in range(PLAYS - 1))]
    print(f"blackbox: {ROUNDS} rounds of {EVENTS:,} events at 2,500 events/s, each step of {STEP} recorded or not")
    print(f"{'':44}{'measured':>14}{'target':>10}{'baseline':>14}{'ratio':>8}")
    every = found["events_per_checkpoint"]
    checkpoint_us = statistics.median(found["checkpoint_s"]) / every * 1e6
    rounds = found["rounds"]
    more = [turns + make + thread + checkpoint_us for _, turns, make, thread in rounds]
    ratios = [cost / one[0] for cost, one in zip(more, rounds, strict=True)]
    off, turns, make, thread = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(ratios)
    print(
        f"  {'an event, CPU, recorded':42}{off * (1 + ratio):>11.1f} µs{'≤ 5 %':>10}{off:>11.1f} µs{ratio:>+8.1%}"
        f"  rounds {min(ratios):+.1%} to {max(ratios):+.1%}"
    )
    parts = (("its turns", turns), ("making records of it", make), ("the thread that writes", thread))
    for what, took_us in (*parts, (f"a checkpoint every {every / RATE / 60:.0f} minutes", checkpoint_us)):
        print(f"  {'  of that ' + what:42}{took_us:>11.2f} µs{'':24}{took_us / off:>+8.1%}")
    for what, plays, places in (
        ("in ordinary turns", found["turns"], 1),
        ("while the lists come in", found["lists"], PLACES),
        ("while a checkpoint is copied", found["copying"], 1),
        ("while it is written", found["writing"], PLACES),
    ):
        calls, each = sum(map(len, plays)), max(map(max, plays)) * 1000
        longest = recurring(plays, places) * 1000
        print(f"  {'longest call ' + what:42}{longest:>11.2f} ms{'≤ 5 ms':>10}{each:>11.2f} ms{'':8}  {calls:,} calls")
    usual_s = statistics.median(itertools.chain(*found["writing"]))
    print(f"  {'  usually, while it is written':42}{usual_s * 1000:>11.2f} ms")
    print(f"  {'a checkpoint, copied in all':42}{min(map(sum, found['copying'])) * 1000:>11.2f} ms")
    print(f"  {'a checkpoint, CPU':42}{statistics.median(found['checkpoint_s']):>12.2f} s")
    print(f"  {'bytes in the file, an event':42}{found['bytes']:>14.0f}")
    print(f"  {'a checkpoint, MB':42}{found['checkpoint_mb']:>14.1f}")


def child(what):
    run = subprocess.run([sys.executable, "-m", "bench.blackbox", what], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(run.stdout.splitlines()[-1])


def recurring(plays, places):
    """The longest call that is as long near the same place of each play."""

    def longest(play, place):
        """With the places beside it: no two plays make quite the same calls."""
        return max(play[max(0, (place - 1) * len(play) // places) : (place + 2) * len(play) // places + 1])

    return max(min(longest(play, place) for play in plays) for place in range(places))


class Timed:
    """A black box whose calls are timed."""

    def __init__(self, directory, engine):
        from mooring.core.engine.recording.checkpoint import capture
        from mooring.process.blackbox.writer import BlackBox, header_of
        from mooring.process.settings.config import Config

        self.stopped = []
        header = header_of(Config(), "bench", time.time())
        self.box = BlackBox(Path(directory), header, 1 << 30, self.stopped.append, lambda: capture(engine), self.later)
        #: What each call took since it was last asked for, and all of them by the thread's clock.
        self._took_s, self._spent_s = [], 0.0

    def later(self, seconds, call):
        """What the box does between turns is timed, too."""
        asyncio.get_running_loop().call_later(seconds, self.timed, call)

    def turn(self, *what):
        self.timed(self.box.turn, *what)

    def timed(self, call, *what):
        at, clock_at = time.thread_time(), time.perf_counter()
        call(*what)
        took_s = time.thread_time() - at
        self._spent_s += took_s
        self._took_s.append(min(took_s, time.perf_counter() - clock_at))

    def calls(self):
        """Seconds of each, and in all."""
        found = self._took_s, self._spent_s
        self._took_s, self._spent_s = [], 0.0
        return found

    def written_s(self):
        """CPU of the thread that writes."""
        return time.clock_gettime(time.pthread_getcpuclockid(self.box._files.thread.ident))

    def close(self):
        self.box.close()
        assert not self.stopped, self.stopped


def size(directory):
    return sum(path.stat().st_size for path in Path(directory).iterdir())


class Recorded:
    """The stream, recorded or not, step by step."""

    def __init__(self, shell, api, timed, together):
        self._shell, self._api, self._timed, self._together = shell, api, timed, together
        self._randomness, self._version = random.Random(5), 200_000
        #: CPU of the loop's thread per event, of each step, by what was recorded of it.
        self._took_s = {True: [], False: []}
        self._on, self._at, self._recorded = False, 0.0, 0

    def step(self, first=False):
        """What was done since the last one was recorded, or not."""
        if not first:
            self._took_s[self._on].append((time.thread_time() - self._at) / STEP)
            self._recorded += STEP if self._on else 0
        if self._recorded >= self._together:
            self._recorded = 0
            self._timed.box._end_batch()
            self._timed.timed(self._timed.box._go_on)
        self._on = self._randomness.random() < 0.5
        self._shell.engine.recorder = self._timed.box if self._on else None
        self._at = time.thread_time()

    async def round(self):
        """Of an event, in µs: without recording, what its turns take more, making its records, the thread."""
        from mooring.core.model.events import Seen
        from mooring.core.model.kinds import Kind

        wrote_s = self._timed.written_s()
        self._timed.calls()
        self._took_s[True].clear()
        self._took_s[False].clear()
        events = self._api.watch(Kind.POD, resource_version=str(self._version))
        self._version += EVENTS
        async with contextlib.aclosing(events):
            for number in range(EVENTS):
                event = await anext(events)
                if number % STEP == 0:
                    self.step(first=number == 0)
                self._shell.tell(Seen(Kind.POD, event.object))
        while self._shell.backlog:
            await asyncio.sleep(0.01)
        on, off = (statistics.median(self._took_s[which]) for which in (True, False))
        made_us = statistics.median(self._timed.calls()[0]) / self._together * 1e6
        await asyncio.sleep(1.2)
        return off * 1e6, (on - off) * 1e6, made_us, (self._timed.written_s() - wrote_s) / (EVENTS / 2) * 1e6


async def measure(directory, lists_only=False):
    from bench.spine import build, feed, lead, settle, stream
    from mooring.process.blackbox import writer
    from mooring.process.settings.config import BlackBoxSettings

    shell, _, namespaces = build()
    timed = Timed(directory, shell.engine)
    shell.engine.recorder, shell.held = timed, lambda: timed.box.copying
    pump = asyncio.create_task(shell.run())
    await settle(shell)
    await lead(shell, namespaces)
    while timed.box._to_make:
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)
    found = {"lists": timed.calls()[0]}
    if lists_only:
        await end(shell, timed, pump)
        return found
    # Most of a part comes after each pod was named in it once: that is done now, and counts with the checkpoint.
    named_s, named_mb = name_all(shell, timed)
    before, events = size(directory), ROUNDS * EVENTS // 2
    together, later = writer.TOGETHER, timed.box._later
    # Records are made after every 1,000 events as in a replica, but between two steps, where that is timed by itself.
    writer.TOGETHER, timed.box._later = 1 << 60, lambda *_: None
    async with watching() as api:
        recorded = Recorded(shell, api, timed, together)
        found["rounds"] = [await recorded.round() for _ in range(ROUNDS)]
    found["bytes"] = (size(directory) - before) / events
    writer.TOGETHER, timed.box._later, timed.box._armed = together, later, False
    # Timing each call costs as much as some calls do: events of their own, and nothing is left over for them.
    timed.box._end_batch()
    while timed.box._to_make:
        timed.box._go_on()
    shell.engine.recorder, found["turns"], spent_s = timed, [], []
    timed.calls()
    for play in range(PLAYS):
        for number in range(20):
            await feed(shell, stream(number, 900_000 + play * 5_000 + number * 250, 250))
        took_s, in_all_s = timed.calls()
        found["turns"].append(took_s)
        spent_s.append(in_all_s)
    found |= {"call_us": min(spent_s) / (20 * 250) * 1e6, "checkpoint_s": [], "copying": [], "writing": []}
    part = (BlackBoxSettings().size << 20) // writer.PARTS
    found["thread_us"] = statistics.median(thread for *_, thread in found["rounds"])
    for number in range(PLAYS):
        await checkpoint(shell, timed, found, directory, 1_000_000 * (number + 1))
    found["events_per_checkpoint"] = (part - (found["checkpoint_mb"] + named_mb) * 1e6) / found["bytes"]
    found["checkpoint_s"] = [took_s + named_s for took_s in found["checkpoint_s"]]
    await end(shell, timed, pump)
    return found


async def end(shell, timed, pump):
    shell.engine.recorder = None
    timed.close()
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)


def name_all(shell, timed):
    """CPU, and MB in the file."""
    import msgspec

    from mooring.process.blackbox.file import FrameWriter

    uids, frames, at, written = [pod.uid for pod in shell.engine.world.pods()], FrameWriter(), time.thread_time(), 0
    for start in range(0, len(uids), 500):
        first, fresh, _ = timed.box._records._names.of(uids[start : start + 500])
        written += len(frames.frame([msgspec.msgpack.encode((first, fresh))]))
    return time.thread_time() - at, written / 1e6


async def checkpoint(shell, timed, found, directory, version):
    """Capture one, and write it between the turns of the same stream."""
    from bench.spine import feed, stream

    await asyncio.sleep(1.2)
    before, wrote_s = size(directory), timed.written_s()
    timed.calls()
    timed.timed(timed.box.begin_part)
    while timed.box.copying:
        await asyncio.sleep(0)
    took_s, captured_s = timed.calls()
    found["copying"].append(took_s)
    assert timed.box._checkpoint is not None
    number = 0
    while timed.box._checkpoint is not None:
        await feed(shell, stream(number, version + number * 250, 250))
        number += 1
    took_s, made_s = timed.calls()
    found["writing"].append(took_s)
    await asyncio.sleep(1.2)
    made_s -= number * 250 * found["call_us"] / 1e6
    thread_s = timed.written_s() - wrote_s - number * 250 * found["thread_us"] / 1e6
    found["checkpoint_s"].append(captured_s + made_s + thread_s)
    found["checkpoint_mb"] = (size(directory) - before - number * 250 * found["bytes"]) / 1e6


if __name__ == "__main__":
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(asyncio.run(measure(made, lists_only=sys.argv[1:] == ["lists"]))))
