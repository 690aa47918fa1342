"""Seeds on an existing Dask cluster: each is a part (`sim.dask`)."""

from collections.abc import Iterator, Sequence

import msgspec

from mooring_lab.simulate.seeds import SeedOptions, brief, quiet_logs
from mooring_lab.simulate.simulation import Result
from mooring_lab.stage.dask import Asked, DaskUnreachableError, Lost, on_dask


def run_on_dask(seeds: Sequence[int], options: SeedOptions, address: str) -> Iterator[Result]:
    """As `seeds.run_many`, in the order in which they come."""
    work = msgspec.msgpack.encode(options)
    for number, body in on_dask(address, __name__, work, [msgspec.msgpack.encode(seed) for seed in seeds]):
        if isinstance(body, Lost):
            raise DaskUnreachableError(f"seed {seeds[number]} was lost on the workers of {address}: {body.why}")
        yield msgspec.msgpack.decode(body, type=Result)


def main() -> None:
    """Beside a worker."""
    quiet_logs()
    asked = Asked()
    options = msgspec.msgpack.decode(asked.work, type=SeedOptions)
    for part in asked.parts():
        asked.answer(msgspec.msgpack.encode(brief((msgspec.msgpack.decode(part, type=int), options))))


if __name__ == "__main__":
    main()
