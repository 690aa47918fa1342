"""All informers of a process: started together, ready together, with the garbage collector off meanwhile.

A sync makes hundreds of thousands of objects that stay. The collector would walk them again and again while they come
in (measured at 150,000 pods: stalls of 635 ms, against 16 ms with the collector off), and once more in every full
collection afterwards. So it is off while any sync runs; when the last one ends, what is left is frozen: the collector
never looks at it again. A sync that fails switches it on again too: an API server may be down for hours.

What changes afterwards stays too and is not frozen: under 1,000 admissions a second a full collection came every few
seconds and took 25 to 40 ms, in which no request was answered. So it is made rare; what goes in cycles here is young.
"""

import asyncio
import gc
from collections.abc import Collection, Iterable
from types import TracebackType
from typing import Final

from mooring.clients.kube.informer import Informer
from mooring.core.model.kinds import Kind

#: `gc.set_threshold` once the world is there.
SELDOM: Final = (10_000, 50, 100)


class QuietCollector:
    """`with quiet:` around each sync. They may overlap; only the first in and the last out do something."""

    def __init__(self) -> None:
        self._inside = 0
        self._was_enabled = False
        self._succeeded = False

    def __call__(self) -> "QuietCollector":
        return self

    def __enter__(self) -> None:
        if self._inside == 0:
            self._was_enabled = gc.isenabled()
            self._succeeded = False
            gc.disable()
        self._inside += 1

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._inside -= 1
        self._succeeded = self._succeeded or kind is None
        if self._inside:
            return
        if self._succeeded:
            # First the garbage out, or it would be kept for good.
            gc.collect()
            gc.freeze()
            gc.set_threshold(*SELDOM)
        if self._was_enabled:
            gc.enable()


class InformerSet:
    """Runs informers side by side. Ready (`synced`) when every one of them, but for the optional ones, has listed its
    kind once."""

    def __init__(self, informers: Iterable[Informer], optional: Collection[Kind] = ()) -> None:
        self.informers = tuple(informers)
        self._needed = tuple(one for one in self.informers if one.kind not in optional)

    @property
    def synced(self) -> bool:
        return all(i.synced for i in self._needed)

    def has(self, kind: Kind) -> bool:
        """Whether the API server knows this optional kind."""
        return any(one.kind is kind and one.synced and not one.absent for one in self.informers)

    @property
    def missing(self) -> tuple[str, ...]:
        """The kinds not synced yet, each with what went wrong last: for `/readyz` and `doctor`."""
        return tuple(
            f"{i.kind}: {i.stats.last_error}" if i.stats.last_error else str(i.kind)
            for i in self._needed
            if not i.synced
        )

    async def run(self) -> None:
        """Until cancelled. An error that is not the API's (a bug in the sink) ends them all."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run(), name=f"informer {informer.kind}")
