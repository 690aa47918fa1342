"""What the black box costs: CPU at 2,500 events a second with and without it, in one run, and its longest pauses.

    python -m bench blackbox

The replica of `bench.spine`: 5,000 nodes, 150,000 pods, it leads and every capability is on. Blocks of a tenth of a
second with and without recording alternate, in pairs of either order, so that whatever else the machine does falls on
both. CPU is that of the loop's thread, and the thread that compresses and writes is added to the blocks that are
recorded; ± is the standard error over the pairs. A pause is what one call of the recorder took of the loop's thread:
the lists at the start, copying a checkpoint, and a turn in which a part of it is written. Checkpoints of this size
come every few minutes; their CPU is a line of its own.
"""

import asyncio
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Pairs of blocks, and events in each.
PAIRS = 240
BLOCK = 250


def main() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench.blackbox", "child"], check=True, stdout=subprocess.PIPE, text=True
    )
    found = json.loads(run.stdout.splitlines()[-1])
    without, with_, writes = found["without_us"], found["with_us"], found["thread_us"]
    print(f"blackbox: {PAIRS} pairs of blocks of {BLOCK} events at 2,500 events/s, recorded or not")
    print(f"{'':44}{'measured':>14}{'target':>10}{'baseline':>14}{'ratio':>8}")
    ratio, error = (with_ + writes) / without - 1, found["error_us"] / without
    print(
        f"  {'an event, CPU, recorded':42}{with_ + writes:>11.1f} µs{'≤ 5 %':>10}{without:>11.1f} µs{ratio:>+8.1%}"
        f" ± {error:.1%}"
    )
    print(f"  {'  of that the thread that writes':42}{writes:>11.1f} µs")
    print(f"  {'  of that the calls in the loop':42}{found['call_us']:>11.1f} µs")
    print(f"  {'longest call in a turn, CPU':42}{found['longest_ms']:>11.2f} ms{'≤ 5 ms':>10}")
    print(f"  {'longest call while the lists come in, CPU':42}{found['lists_ms']:>11.2f} ms{'≤ 5 ms':>10}")
    copied = f"{found['copied_ms']:>11.1f} ms in all"
    print(f"  {'longest call while a checkpoint is copied':42}{found['capture_ms']:>11.2f} ms{'≤ 5 ms':>10}{copied}")
    print(f"  {'longest call while it is written, CPU':42}{found['parts_ms']:>11.2f} ms{'≤ 5 ms':>10}")
    per_event = found["checkpoint_s"] / (32e6 / found["bytes"]) * 1e6
    print(
        f"  {'a checkpoint, CPU':42}{found['checkpoint_s']:>12.2f} s{'':10}{per_event:>11.1f} µs an event, every 32 MB"
    )
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

    def later(self, seconds, call):
        """What the box does between turns is timed, too."""
        asyncio.get_running_loop().call_later(seconds, self.timed, call)

    def turn(self, *what):
        self.timed(self.box.turn, *what)

    def timed(self, call, *what):
        at = time.thread_time()
        call(*what)
        took_s = time.thread_time() - at
        self.longest_ms = max(self.longest_ms, took_s * 1000)
        self.spent_s += took_s

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


async def measure(directory):
    from bench.spine import build, feed, lead, settle, stream

    shell, _, namespaces = build()
    timed = Timed(directory, shell.engine)
    shell.engine.record, shell.held = timed.turn, lambda: timed.box.copying
    pump = asyncio.create_task(shell.run())
    await settle(shell)
    await lead(shell, namespaces)
    while timed.box._to_make:
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)
    found = {"lists_ms": timed.longest()}
    version = 200_000
    blocks = [stream(number, version + number * BLOCK, BLOCK) for number in range(2 * PAIRS)]
    spent, before, wrote_s = {True: [], False: []}, size(directory), timed.written_s()
    for number, raws in enumerate(blocks):
        on = bool(number % 2) is not bool(number // 2 % 2)
        shell.engine.record = timed.box.turn if on else None
        at = time.thread_time()
        await feed(shell, raws)
        spent[on].append(time.thread_time() - at)
    await asyncio.sleep(0.7)
    events = PAIRS * BLOCK
    found |= {"with_us": sum(spent[True]) / events * 1e6, "without_us": sum(spent[False]) / events * 1e6}
    more = [on - off for on, off in zip(spent[True], spent[False], strict=True)]
    found["error_us"] = statistics.stdev(more) / PAIRS**0.5 / BLOCK * 1e6
    found["thread_us"] = (timed.written_s() - wrote_s) / events * 1e6
    found["bytes"] = (size(directory) - before) / events
    # Timing each call costs as much as some calls do: blocks of their own.
    shell.engine.record = timed.turn
    timed.longest()  # what was timed between the turns of the blocks is not of these
    for number in range(20):
        await feed(shell, stream(number, 900_000 + number * BLOCK, BLOCK))
    found |= {"call_us": timed.spent_s / (20 * BLOCK) * 1e6, "longest_ms": timed.longest()}
    await checkpoint(shell, timed, found, directory)
    shell.engine.record = None
    timed.close()
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)
    return found


async def checkpoint(shell, timed, found, directory):
    """Capture one, and write it between the turns of the same stream."""
    from bench.spine import feed, stream

    await asyncio.sleep(0.7)
    before, wrote_s = size(directory), timed.written_s()
    timed.longest()
    timed.timed(timed.box.begin_part)
    while timed.box.copying:
        await asyncio.sleep(0)
    captured_s = timed.spent_s
    found |= {"copied_ms": captured_s * 1000, "capture_ms": timed.longest()}
    assert timed.box._checkpoint is not None
    number = 0
    while timed.box._checkpoint is not None:
        await feed(shell, stream(number, 1_000_000 + number * BLOCK, BLOCK))
        number += 1
    await asyncio.sleep(0.7)
    made_s = timed.spent_s - number * BLOCK * found["call_us"] / 1e6
    thread_s = timed.written_s() - wrote_s - number * BLOCK * found["thread_us"] / 1e6
    found |= {"checkpoint_s": captured_s + made_s + thread_s, "parts_ms": timed.longest()}
    found["checkpoint_mb"] = (size(directory) - before - number * BLOCK * found["bytes"]) / 1e6


if __name__ == "__main__":
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(asyncio.run(measure(made))))
