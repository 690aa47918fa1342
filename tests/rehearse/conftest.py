"""One snapshot of the demo's cluster for all that only read it."""

import pytest

from mooring_lab.rehearse.snapshot.load import demo_snapshot
from mooring_lab.rehearse.snapshot.schema import Snapshot


@pytest.fixture(scope="session")
def demo() -> Snapshot:
    return demo_snapshot()
