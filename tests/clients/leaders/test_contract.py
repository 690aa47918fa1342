"""Every driver keeps the contract against the sandbox's stand-in; tests/e2e/test_leaders.py does so on real ones."""

from urllib.parse import urlsplit

import pytest

from mooring.clients.leaders import DRIVERS
from mooring.clients.leaders.ask import LeaderAnswer
from mooring.clients.ports import UnansweredError
from mooring.core.model.leaders import DRIVERS as NAMES
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.leaders import LedSystem
from tests.clients.leaders.leader_contract import CASES


class StandIn:
    def __init__(self, driver):
        self.timeline = Timeline()
        self.members = ["db-0", "db-1", "db-2"]
        self.system = LedSystem(self.timeline, driver, ("data", "db"))
        for name in self.members:
            self.system.started(name)
        self.driver = DRIVERS[driver](self.ask, {name: f"http://{name}.db.data.svc" for name in self.members})

    async def ask(self, method, url, body):
        host = urlsplit(url).hostname.partition(".")[0]
        if not self.system.running:
            raise UnansweredError("nobody is there")
        return LeaderAnswer(*self.system.answer(host, method, urlsplit(url).path, body))

    async def stop(self, name):
        self.system.stopped(name)

    async def start(self, name):
        self.system.started(name)

    async def until(self, holds):
        for _ in range(200):
            view = await self.driver.read()
            if holds(view):
                return view
            self.timeline.run_for(0.5)
        raise AssertionError(f"not within 100 s: {view}")


def test_every_name_has_its_driver():
    """L4: one line of registration, and the annotation's words are the drivers'."""
    assert tuple(DRIVERS) == NAMES


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_stand_in_keeps_the_contract(driver, case):
    """L4: what holds of the real system holds of its stand-in."""
    await case(StandIn(driver))


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"members": 7}', b"{}", b"\xff", b"[" * 100_000])
async def test_an_answer_in_another_form_is_no_answer(driver, body):
    """Silence, zero and lies: what cannot be read never says that nobody leads."""

    async def ask(method, url, sent):
        return LeaderAnswer(200, body)

    try:
        view = await DRIVERS[driver](ask, {"db-0": "http://a", "db-1": "http://b"}).read()
    except UnansweredError:
        return
    assert view.busy and not any(m.is_well for m in view.members), view
