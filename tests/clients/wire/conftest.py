import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture
def recorded() -> Callable[[str], dict[str, Any]]:
    """An object as kube-apiserver 1.36 really sent it."""
    return lambda name: json.loads((DATA / f"{name}.json").read_text())
