"""The tools that chart and alerts are for: pinned, and built once with Go as the control plane is."""

import pytest

from mooring_lab.control.build import find_tools


@pytest.fixture(params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest) -> str:
    return str(find_tools()[request.param])


@pytest.fixture
def promtool() -> str:
    return str(find_tools()["promtool"])
