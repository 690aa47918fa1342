"""The garbage collector, kept from walking a large cluster over and over.

A store of 150,000 pods is some ten million tracked objects without a single cycle among them; with the default
thresholds collecting takes more time than all the writes. Runs of a large sandbox are wrapped in this.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_collector(young: int = 200_000) -> Iterator[None]:
    """Collect rarely inside, as before afterwards."""
    before = gc.get_threshold()
    gc.set_threshold(young, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
