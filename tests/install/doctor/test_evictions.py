"""Evictions that are refused for long: who drains is told by the doctor, too (issue 42)."""

import pytest

from mooring.capabilities.drain.descriptor import examine
from mooring.capabilities.drain.gate import SOURCE
from mooring.core.model.cluster import Pod, PodShape
from mooring.core.model.descriptor import Examined
from mooring.core.model.marks import LEAVING, Mark, write_mark
from mooring.process.settings.config import Config

NOW = 100_000.0


def held(since, source=SOURCE):
    mark = Mark(operator="", source=source, reason="evicted", step="request", since=since, pod_uid="u", node="n1")
    pod = Pod("shop", "web", "u", "1", PodShape(), phase="Running", annotations={LEAVING: write_mark(mark)})
    return Examined(config=Config(), on=True, pods=(pod,), now=NOW)


def test_an_eviction_that_is_refused_for_long_is_a_finding():
    """It names the pod, how long, and the command that says why."""
    (found,) = examine(held(NOW - 4000.0))
    assert (found.code, found.level) == ("MO903", "warning")
    assert "shop/web: refused for up to 4000 s" in found.seen and "mooring why pod/shop/web" in found.fix


@pytest.mark.parametrize(("since", "source"), [(NOW - 100.0, SOURCE), (NOW - 4000.0, "spot")])
def test_one_that_is_not_yet_or_not_held_is_none(since, source):
    """Within `drain.max-hold-s` all is well; a mark of another source holds no eviction."""
    assert list(examine(held(since, source))) == []
