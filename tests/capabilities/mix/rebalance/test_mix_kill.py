"""A replica of Mooring is ended at every write of a mode change and of a notice."""

import pytest

from tests.sim.kill import KillScenario, kill_everywhere
from tests.sim.scenarios.mix import ModeChangeScenario, NoticeScenario, QuickScenario


@pytest.mark.parametrize(
    "scenario",
    [ModeChangeScenario(), QuickScenario(replicas=3, before=0, after=2), NoticeScenario(spots=1, replicas=2)],
    ids=lambda s: s.name,
)
def test_kill_at_every_write(scenario: KillScenario) -> None:
    """M5, M6, M8: killed right before or right after any write, the next leader ends in the same state, nobody is deleted
    twice, and no mark, cordon or detached pod stays."""
    assert list(kill_everywhere(scenario)) == []
