"""`python -m tests.fuzz --inputs 1000000 [--seed 1] [--only NAME]`: exit 1 on a traceback of ours, a stall or growth."""

import argparse
import ctypes
import gc
import logging
import random
import resource
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import structlog

from mooring.clients.kube.informers import SELDOM
from mooring.core.model.limits import MIB
from tests.fuzz.mutate import mutated
from tests.fuzz.tables import bytes_of, tables, too_large
from tests.fuzz.targets import Target, crowd, targets

STALL_S = 0.1
#: The uids of the last objects of each kind that went are remembered.
MOST_LEFT = 8 * MIB
#: After the first tenth everything that is made once has been made.
GROWTH_KIB = 20 * 1024


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="targets whose name has this in it")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    found = [target for target in targets() if given.only in target.name]
    # As in a replica whose world is there.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)
    tracebacks, stalls, grown = fuzz(found, given.inputs, given.seed)
    large, left = too_large(), bytes_of(crowd().world)
    for words in large:
        print(words, file=sys.stderr)
    print(
        f"{given.inputs} inputs over {len(found)} targets: {tracebacks} tracebacks of ours, {stalls} stalls above "
        f"{STALL_S * 1000:.0f} ms, memory grew by {grown // 1024} MiB after the first tenth; {left >> 10} KiB in a world "
        "that nobody is left in; the fullest tables:"
    )
    for name, (held, bound) in sorted(tables().items(), key=lambda one: -one[1][0])[:8]:
        print(f"  {held / MIB:6.1f} of {bound / MIB:5.1f} MiB  {name}")
    return 1 if tracebacks or stalls or grown > GROWTH_KIB or large or left > MOST_LEFT else 0


def fuzz(found: list[Target], inputs: int, seed: int, *, weighed: bool = True) -> tuple[int, int, int]:
    """Tracebacks, stalls, and KiB by which the process grew: to weigh it takes a collection of all garbage, 20 times."""
    shown: Counter[str] = Counter()
    tracebacks = stalls = settled = most = 0
    for number in range(inputs):
        randomness = random.Random(f"{seed}/{number}")
        target = found[number % len(found)]
        body = mutated(randomness.choice(target.seeds), randomness)
        took, error = _tried(target, body)
        if error is not None:
            tracebacks += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            key = f"{target.name}: {type(error).__name__} at {where.filename.rpartition('/')[2]}:{where.lineno}"
            shown[key] += 1
            if shown[key] == 1:
                print(f"{key}: {error!s:.200}\n  input {number} (seed {seed}): {body[:400]!r}", file=sys.stderr)
        # A collection of garbage is nobody's input: what is slow is slow each time.
        if took > STALL_S and (took := min(_tried(target, body)[0] for _ in range(3))) > STALL_S:
            stalls += 1
            print(f"{target.name}: {took:.2f} s for input {number} (seed {seed})", file=sys.stderr)
        if weighed and number % (inputs // 20 or 1) == 0:
            held = _held()
            settled, most = (held, held) if number <= inputs // 10 else (settled, max(most, held))
    return tracebacks, stalls, max(most, _held()) - settled if weighed else 0


def _tried(target: Target, body: bytes) -> tuple[float, Exception | None]:
    """CPU seconds of this process, so that a busy machine is no stall of ours; and the error that may not be."""
    given = target.prepare(body)
    began = time.process_time()
    error: Exception | None = None
    try:
        target.run(given)
    except target.may_raise:
        pass
    except Exception as found:
        error = found
    return time.process_time() - began, error


def _held() -> int:
    """KiB of memory of this process, without what was used to make an input and is free again."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


if __name__ == "__main__":
    sys.exit(main())
