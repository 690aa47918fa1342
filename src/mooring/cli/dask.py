"""What can be wrong with `--dask tcp://HOST:PORT`, as exit codes."""

from collections.abc import Iterator
from contextlib import contextmanager

from mooring.cli.exits import CommandError, Exit


@contextmanager
def on_dask() -> Iterator[None]:
    """Another Mooring there is 2, no answer is 4, each in a sentence."""
    from mooring.sim.dask import DaskMismatchError, DaskUnreachableError

    try:
        yield
    except DaskMismatchError as error:
        raise CommandError(str(error)) from None
    except DaskUnreachableError as error:
        raise CommandError(str(error), Exit.COULD_NOT_LOOK) from None
