"""What the black box costs: CPU at 2,500 events a second with and without it, in one run, and its longest pause.

    python -m bench blackbox

The replica of `bench.spine`: 5,000 nodes, 150,000 pods, it leads and every capability is on. Rounds with and without
recording alternate, so that whatever else the machine does falls on both. CPU is that of the whole process, the
thread that compresses and writes included. The pause is the longest that one call of the recorder took of the loop's
thread, the lists at the start included.
"""

import asyncio
import json
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 8
ROUND_S = 2


def main() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench.blackbox", "child"], check=True, stdout=subprocess.PIPE, text=True
    )
    found = json.loads(run.stdout.splitlines()[-1])
    without, with_ = found["without_us"], found["with_us"]
    print(f"blackbox: {ROUNDS} rounds each of {ROUND_S} s at 2,500 events/s")
    print(f"{'':44}{'measured':>14}{'target':>10}{'baseline':>14}{'ratio':>8}")
    print(
        f"  {'an event, CPU, recorded':42}{with_:>11.1f} µs{'≤ 5 %':>10}{without:>11.1f} µs{with_ / without - 1:>+8.1%}"
    )
    least = found["least"]
    print(
        f"  {'  the same, least of the rounds':42}{least[0]:>11.1f} µs{'≤ 5 %':>10}{least[1]:>11.1f} µs"
        f"{least[0] / least[1] - 1:>+8.1%}"
    )
    print(f"  {'  spread of the rounds, with and without':42}{found['spread']:>14}")
    print(f"  {'  of that in the loop, turns an event':42}{found['call_us']:>11.1f} µs{found['turns']:>10.2f}")
    print(f"  {'longest call, CPU':42}{found['longest_ms']:>11.2f} ms{'≤ 5 ms':>10}")
    print(f"  {'longest call while the lists come in, CPU':42}{found['lists_ms']:>11.2f} ms{'≤ 5 ms':>10}")
    print(f"  {'bytes in the file, an event':42}{found['bytes']:>14.0f}")


class Timed:
    """A black box whose calls are timed."""

    def __init__(self, directory):
        from mooring.process.blackbox import BlackBox, header_of
        from mooring.process.config import Config

        self.stopped = []
        self.box = BlackBox(Path(directory), header_of(Config(), "bench", time.time()), 1 << 30, self.stopped.append)
        self.longest_ms, self.spent_s, self.calls = 0.0, 0.0, 0

    def turn(self, *what):
        at = time.thread_time()
        self.box.turn(*what)
        took_s = time.thread_time() - at
        self.longest_ms = max(self.longest_ms, took_s * 1000)
        self.spent_s += took_s
        self.calls += 1

    def close(self):
        self.box.close()
        assert not self.stopped, self.stopped


def size(directory):
    return sum(path.stat().st_size for path in Path(directory).iterdir())


async def measure(directory):
    from bench.spine import RATE, build, feed, lead, settle, stream

    shell, _, namespaces = build()
    timed = Timed(directory)
    shell.engine.record = timed.turn
    pump = asyncio.create_task(shell.run())
    await settle(shell)
    await lead(shell, namespaces)
    await asyncio.sleep(1.0)
    lists_ms = timed.longest_ms
    timed.longest_ms, timed.spent_s, timed.calls = 0.0, 0.0, 0
    spent, per_round, before = {True: [], False: []}, RATE * ROUND_S, size(directory)
    for number in range(2 * ROUNDS):
        on = bool(number % 2)
        shell.engine.record = timed.box.turn if on else None
        raws = stream(number, 200_000 + number * per_round, per_round)
        cpu_s = (await feed(shell, raws))[0]
        at = time.process_time()
        await asyncio.sleep(0.7)  # what is not written yet belongs to this round
        cpu_s += time.process_time() - at
        spent[on].append(cpu_s / per_round * 1e6)
    written = (size(directory) - before) / (ROUNDS * per_round)
    # Timing each call costs as much as some calls do: a round of its own.
    shell.engine.record = timed.turn
    await feed(shell, stream(99, 900_000, per_round))
    shell.engine.record = None
    timed.close()
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)
    middle = {on: sorted(each)[len(each) // 2] for on, each in spent.items()}
    return {
        "with_us": middle[True],
        "without_us": middle[False],
        "least": [min(spent[True]), min(spent[False])],
        "spread": " / ".join(f"{min(each):.0f}–{max(each):.0f}" for each in (spent[True], spent[False])),
        "longest_ms": timed.longest_ms,
        "lists_ms": lists_ms,
        "bytes": written,
        "turns": timed.calls / per_round,
        "call_us": timed.spent_s / per_round * 1e6,
    }


if __name__ == "__main__":
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(asyncio.run(measure(made))))
