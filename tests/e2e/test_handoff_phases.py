"""What befalls PD or our process in each phase of a hand-over: no pod goes with leaders on it, no scheduler stays.

A phase is a place between the writes that pass our doors, so it is hit exactly: the string is pulled right after the mark
was written, right before the deletion is sent, and so on. The truth about leaders is asked of TiKV, not of PD.
"""

import asyncio
import re

import msgspec
import pytest

from mooring.clients.ports import PortError
from mooring_lab.control.servers import NO_PD
from tests.e2e.spine_environment import Environment, RealPlacement, SandboxPlacement, Toll
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e
RESTART = "tidb.pingcap.com/restart="

#: Phase → the write of an undisturbed restart that it borders on, and which side of it.
PHASES = {
    "recorded": (1, "after"),
    "evicting": (2, "after"),
    "proven empty": (3, "before"),
    "about to be deleted": (4, "before"),
    "deleted": (4, "after"),
    "waiting for the new pod": None,
    "Ready, store Up": (5, "before"),
    "scheduler out": (5, "after"),
}
#: The sandbox's PD is struck in every phase on virtual time (tests/capabilities/handoff/test_exits.py); here before, at and after the
#: deletion, to show that the way there and back over HTTP changes nothing.
FEW = ("evicting", "about to be deleted", "Ready, store Up")


@pytest.fixture(params=["sandbox's PD", "real PD"])
def real_pd(request, lab):
    if request.param == "real PD" and lab.pd_server is None:
        pytest.skip(NO_PD)
    return request.param == "real PD"


class Watch(Toll):
    """Pulls a string at an appointed write, and asks TiKV what a pod leads when its deletion passes."""

    def __init__(self, placement):
        super().__init__()
        self._placement = placement
        self._pull = None
        #: Leaders on the pod at each deletion.
        self.laden = []

    def pull_at(self, number, side, pull):
        self._pull = (len(self.writes) + number, side, pull)

    def passes(self, what, side, kill):
        pod = re.fullmatch(r"DELETE .*/pods/demo-tikv-(\d)", what)
        if pod and side == "before":
            self.laden.append(self._placement.leaders(int(pod[1])))
        if self._pull is not None and self._pull[:2] == (self.number(what, side), side):
            pull, self._pull = self._pull[2], None
            pull()
        return super().passes(what, side, kill)


# ── What befalls it ───────────────────────────────────────────────────────────────────────────────────────────────


class SandboxTrouble(SandboxPlacement):
    """The sandbox's PD, in a hurry."""

    def __init__(self, namespace, members):
        names = tuple(f"pd-{i}" for i in range(members))
        super().__init__(namespace, names)
        hurry = {"reconnect_s": (0.3, 0.6), "collect_every_s": 0.3, "failover_s": 1.5}
        self._settings = msgspec.structs.replace(self._settings, **hurry)

    async def prepare(self):
        return None

    def strike(self):
        if len(self._settings.members) == 1:
            self.pd.restart(down_s=0.7)
        else:
            self.pd.lose_leader()

    async def mend(self):
        return None


class RealTrouble(RealPlacement):
    """A real PD whose only member, or whose leader, is killed; the stores find it again a while after it is back."""

    async def prepare(self):
        """All members are there, and who leads is known."""
        await eventually(self._whole)
        self._victim = (await self._client.observe()).leader

    async def _whole(self):
        try:
            members = await self._client.members()
            return len(members) == self._members and all(m.healthy for m in members) and await self._settled()
        except PortError:
            return False

    def strike(self):
        """kill -9, and for a PD of one the false zero: no store is heard for seconds after it is back."""
        if self._members == 1:
            self.tikv.may_connect.clear()
        self._lab.kill(self._victim)

    async def mend(self):
        if self._members > 1:
            await eventually(self._led_by_another)
        await asyncio.to_thread(self._lab.start, self._victim)
        await asyncio.sleep(3 if self._members == 1 else 0)
        self.tikv.may_connect.set()

    async def _led_by_another(self):
        try:
            return (await self._client.observe()).leader != self._victim
        except PortError:
            return False


def environment_for(lab, directory, *, real_pd, members=1):
    environment = Environment(lab, directory)
    trouble = (
        RealTrouble(lab, environment.namespace, members) if real_pd else SandboxTrouble(environment.namespace, members)
    )
    environment.placement = trouble
    environment.toll = Watch(trouble)
    return environment


async def strike_in(environment, phase, name, strike, mend):
    """One hand-over of `name`, struck in that phase; ends when it is over and nothing is left of it."""
    uid, first, struck = await environment.uid(name), len(environment.toll.writes), asyncio.Event()

    def pull():
        strike()
        struck.set()

    async def away():
        return await environment.uid(name) != uid

    if PHASES[phase] is not None:
        environment.toll.pull_at(*PHASES[phase], pull)
    await asyncio.to_thread(environment.annotate, name, RESTART)

    def tell():
        return f"{phase}: {environment.toll.writes[first:]}\n{environment.logs()}"

    if PHASES[phase] is None:
        await eventually(away, every_s=0.01, tell=tell)
        pull()

    async def is_struck():
        return struck.is_set()

    await eventually(is_struck, tell=tell)
    await mend()
    await eventually(lambda: environment.handed_over(name, uid), tell=tell)
    deletions = [w for w in environment.toll.writes[first:] if w.endswith(f"/pods/{name}")]
    assert len(deletions) == 1, f"{phase}: {deletions}"


# ── The tests ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("members", [1, 3], ids=["PD killed and restarted", "leader of three killed"])
async def test_pd_dies_in_each_phase(lab, tmp_path, members, real_pd):
    """E4, E5, E6: PD is killed in each phase of a hand-over and comes back knowing nothing, or another member leads: each
    pod is deleted once, with no leader on it, and each hand-over ends with nothing left behind."""
    phases = PHASES if real_pd else FEW
    async with environment_for(lab, tmp_path, real_pd=real_pd, members=members) as environment:
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        for number, phase in enumerate(phases):
            await environment.placement.prepare()
            name = f"demo-tikv-{number % 3}"
            await strike_in(environment, phase, name, environment.placement.strike, environment.placement.mend)
        assert environment.toll.laden == [0] * len(phases)
        assert environment.placement.interrupted() == 0
        assert environment.most_away <= 1
        assert await environment.left_overs() == []


async def test_we_die_with_pd_in_each_phase(lab, tmp_path):
    """E5, E6: a power cut in each phase, our process and PD at once: the next process finds a PD that shows zero leaders,
    believes nothing of it, and ends what was begun."""
    if lab.pd_server is None:
        pytest.skip(NO_PD)
    async with environment_for(lab, tmp_path, real_pd=True) as environment:
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        for number, phase in enumerate(PHASES):
            await environment.placement.prepare()
            process = environment.processes[-1]

            def strike(process=process):
                environment.placement.strike()
                process.kill()

            async def mend():
                await environment.start()
                await environment.placement.mend()

            await strike_in(environment, phase, f"demo-tikv-{number % 3}", strike, mend)
        assert environment.toll.laden == [0] * len(PHASES)
        assert environment.placement.interrupted() == 0
        assert environment.most_away <= 1
