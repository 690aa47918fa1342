"""What the black box costs: CPU at 2,500 events a second with and without it, in one run, and its longest pauses.

    python -m bench blackbox

The replica of `bench.spine`: 5,000 nodes, 150,000 pods, it leads and every capability is on. Blocks of forty
milliseconds with and without recording alternate, in pairs of random order, so that whatever else the machine does
falls on both. A block ends when all of its events are taken in. What the loop's thread takes more with recording is the
median over the pairs of a round. What is not spread evenly over the events is measured by itself and added: making
records of each 1,000 events, the thread that compresses and writes, and the share of an event in a checkpoint (with it,
in naming each pod once in the part that it begins), at the interval that follows from the default size and the bytes of
an event. Eight rounds: their median, and the least and
most. The garbage collector has the settings of a replica, the same on both sides.

A pause is what one call of the recorder took of the loop's thread: the lists at the start, an ordinary turn, copying a
checkpoint, and a turn in which a part of it is written; the last two are the longest of three checkpoints. It is CPU
time, or by the clock where that is less: a virtual machine books what it was not given on whoever ran. The baseline of
the last is the longest of as many loops that usually take as long as those calls: what the machine adds by itself.
"""

import asyncio
import json
import logging
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Rounds, pairs of blocks in each, and events in a block.
ROUNDS = 8
PAIRS = 100
BLOCK = 100
CHECKPOINTS = 3
RATE = 2_500


def main() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench.blackbox", "child"], check=True, stdout=subprocess.PIPE, text=True
    )
    found = json.loads(run.stdout.splitlines()[-1])
    print(f"blackbox: {ROUNDS} rounds of {PAIRS} pairs of blocks of {BLOCK} events at 2,500 events/s, recorded or not")
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
    print(f"  {'longest call in a turn, CPU':42}{found['longest_ms']:>11.2f} ms{'≤ 5 ms':>10}")
    print(f"  {'longest call while the lists come in, CPU':42}{found['lists_ms']:>11.2f} ms{'≤ 5 ms':>10}")
    copied = f"{found['copied_ms']:>11.1f} ms in all"
    print(f"  {'longest call while a checkpoint is copied':42}{found['capture_ms']:>11.2f} ms{'≤ 5 ms':>10}{copied}")
    often = f"{found['loop_ms']:>11.2f} ms{found['parts_ms'] / found['loop_ms']:>8.1f}"
    print(f"  {'longest call while it is written, CPU':42}{found['parts_ms']:>11.2f} ms{'≤ 5 ms':>10}{often}")
    print(f"  {'  of so many, and the usual one':42}{found['calls']:>14,}{'':10}{found['usual_ms']:>11.2f} ms")
    print(f"  {'a checkpoint, CPU':42}{statistics.median(found['checkpoint_s']):>12.2f} s")
    print(f"  {'bytes in the file, an event':42}{found['bytes']:>14.0f}")
    print(f"  {'a checkpoint, MB':42}{found['checkpoint_mb']:>14.1f}")


class Timed:
    """A black box whose calls are timed."""

    def __init__(self, directory, engine):
        from mooring.core.engine.recording.checkpoint import capture
        from mooring.process.blackbox.writer import BlackBox, header_of
        from mooring.process.settings.config import Config

        self.stopped = []
        header = header_of(Config(), "bench", time.time())
        self.box = BlackBox(Path(directory), header, 1 << 30, self.stopped.append, lambda: capture(engine), self.later)
        self.longest_ms, self.spent_s = 0.0, 0.0
        #: What each call between turns took, while a checkpoint is written.
        self.took_s = None

    def later(self, seconds, call):
        """What the box does between turns is timed, too."""
        asyncio.get_running_loop().call_later(seconds, self.between_turns, call)

    def between_turns(self, call):
        took_s = self.timed(call)
        if self.took_s is not None:
            self.took_s.append(took_s)

    def begin(self):
        return self.box.begin()

    def turn(self, *what):
        self.timed(self.box.turn, *what)

    def timed(self, call, *what):
        at, clock_at = time.thread_time(), time.perf_counter()
        call(*what)
        took_s = time.thread_time() - at
        self.spent_s += took_s
        took_s = min(took_s, time.perf_counter() - clock_at)
        self.longest_ms = max(self.longest_ms, took_s * 1000)
        return took_s

    def longest(self):
        found, self.longest_ms, self.spent_s = self.longest_ms, 0.0, 0.0
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
    """The stream, recorded or not, block by block."""

    def __init__(self, shell, timed, together):
        self._shell, self._timed, self._together = shell, timed, together
        self._chance, self._version = random.Random(5), 200_000

    def streams(self, count):
        """Events of so many blocks. Made ahead: making them between two blocks would empty the caches."""
        from bench.spine import stream

        first, self._version = self._version, self._version + count * BLOCK
        return [stream(version, version, BLOCK) for version in range(first, self._version, BLOCK)]

    async def block(self, on, raws):
        """CPU of the loop's thread."""
        from bench.spine import feed

        box, engine = self._timed.box, self._shell.engine
        engine.recorder = box if on else None
        at = time.thread_time()
        await feed(self._shell, raws)
        return time.thread_time() - at

    async def round(self):
        """Of an event, in µs: without recording, what its turns take more, making its records, the thread."""
        spent, wrote_s, together = {True: [], False: []}, self._timed.written_s(), 0
        blocks = iter(self.streams(2 * PAIRS))
        self._timed.longest()
        for _ in range(PAIRS):
            for on in self._chance.sample((True, False), 2):
                spent[on].append(await self.block(on, next(blocks)))
            together += BLOCK
            if together >= self._together:
                together = 0
                self._timed.timed(self._timed.box._go_on)
        more = [on - off for on, off in zip(spent[True], spent[False], strict=True)]
        made_s = self._timed.spent_s
        await asyncio.sleep(1.2)
        return (
            statistics.median(spent[False]) / BLOCK * 1e6,
            statistics.median(more) / BLOCK * 1e6,
            made_s / PAIRS / BLOCK * 1e6,
            (self._timed.written_s() - wrote_s) / PAIRS / BLOCK * 1e6,
        )


async def measure(directory):
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
    found = {"lists_ms": timed.longest()}
    # Most of a part comes after each pod was named in it once: that is done now, and counts with the checkpoint.
    named_s, named_mb = name_all(shell, timed)
    before, events = size(directory), ROUNDS * PAIRS * BLOCK
    together, later = writer.TOGETHER, timed.box._later
    recorded = Recorded(shell, timed, together)
    # Records are made after every 1,000 events as in a replica, but between the blocks, where that is timed by itself.
    writer.TOGETHER, timed.box._later = 1 << 60, lambda *_: None
    found["rounds"] = [await recorded.round() for _ in range(ROUNDS)]
    found["bytes"] = (size(directory) - before) / events
    writer.TOGETHER, timed.box._later, timed.box._armed = together, later, False
    # Timing each call costs as much as some calls do: blocks of their own.
    shell.engine.recorder = timed
    timed.longest()
    for number in range(20):
        await feed(shell, stream(number, 900_000 + number * 250, 250))
    found |= {"call_us": timed.spent_s / (20 * 250) * 1e6, "longest_ms": timed.longest()}
    part = (BlackBoxSettings().size << 20) // writer.PARTS
    found |= {"checkpoint_s": [], "copied_ms": 0.0, "capture_ms": 0.0, "parts_ms": 0.0}
    calls = []
    found["thread_us"] = statistics.median(thread for *_, thread in found["rounds"])
    for number in range(CHECKPOINTS):
        await checkpoint(shell, timed, found, directory, 1_000_000 * (number + 1), calls)
    found |= {"calls": len(calls), "usual_ms": statistics.median(calls) * 1000}
    found["loop_ms"] = longest_loop(len(calls), statistics.median(calls)) * 1000
    found["events_per_checkpoint"] = (part - (found["checkpoint_mb"] + named_mb) * 1e6) / found["bytes"]
    found["checkpoint_s"] = [took_s + named_s for took_s in found["checkpoint_s"]]
    shell.engine.recorder = None
    timed.close()
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)
    return found


def name_all(shell, timed):
    """CPU, and MB in the file."""
    import msgspec

    from mooring.process.blackbox.file import FrameWriter

    uids, frames, at, written = [pod.uid for pod in shell.engine.world.pods()], FrameWriter(), time.thread_time(), 0
    for start in range(0, len(uids), 500):
        first, fresh, _ = timed.box._records._names.of(uids[start : start + 500])
        written += len(frames.frame([msgspec.msgpack.encode((first, fresh))]))
    return time.thread_time() - at, written / 1e6


def longest_loop(count, usual_s):
    """Of so many loops that usually take so long."""

    def took_s(turns):
        at, clock_at = time.thread_time(), time.perf_counter()
        for _ in range(turns):
            pass
        return min(time.thread_time() - at, time.perf_counter() - clock_at)

    turns = round(usual_s / statistics.median(took_s(10_000) for _ in range(100)) * 10_000)
    return max(took_s(turns) for _ in range(count))


async def checkpoint(shell, timed, found, directory, version, calls):
    """Capture one, and write it between the turns of the same stream."""
    from bench.spine import feed, stream

    await asyncio.sleep(1.2)
    before, wrote_s = size(directory), timed.written_s()
    timed.longest()
    timed.timed(timed.box.begin_part)
    while timed.box.copying:
        await asyncio.sleep(0)
    captured_s = timed.spent_s
    found["copied_ms"] = max(found["copied_ms"], captured_s * 1000)
    found["capture_ms"] = max(found["capture_ms"], timed.longest())
    assert timed.box._checkpoint is not None
    number, timed.took_s = 0, calls
    while timed.box._checkpoint is not None:
        await feed(shell, stream(number, version + number * 250, 250))
        number += 1
    timed.took_s = None
    await asyncio.sleep(1.2)
    made_s = timed.spent_s - number * 250 * found["call_us"] / 1e6
    thread_s = timed.written_s() - wrote_s - number * 250 * found["thread_us"] / 1e6
    found["checkpoint_s"].append(captured_s + made_s + thread_s)
    found["parts_ms"] = max(found["parts_ms"], timed.longest())
    found["checkpoint_mb"] = (size(directory) - before - number * 250 * found["bytes"]) / 1e6


if __name__ == "__main__":
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(asyncio.run(measure(made))))
