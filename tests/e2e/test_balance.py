"""T12 on the real control plane: `mooring run` drives a PD (a real one where there is one) over a store that is added.

All stories are played at the same time, each with a PD, a TidbCluster and a Mooring of its own: most of the time is
spent waiting for moves that the limit lets pass two at a time.
"""

import asyncio
import contextlib
import time

import pytest

from mooring.clients.kube import HttpKubeApi, load
from mooring.clients.ports import AlreadyExistsError
from mooring.core.model.kinds import Kind
from tests.e2e.balance_ground import LIMIT, REGIONS, STORES, Environment
from tests.e2e.spine_ground import CRD
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e


async def nothing(ground):
    """Nothing happens midway; in the end PD gets its regions back."""
    yield
    ground.others_until_released, ground.most_until_released = dict(ground.others), ground.peak_of_all
    await ground.release()
    ground.paused_after_release = await ground.paused()
    await asyncio.sleep(4)
    ground.paused_later = await ground.paused()


async def killed(ground):
    """kill -9, and another starts; in the end it is killed for good."""
    ground.kill()
    ground.start()
    yield
    began = time.monotonic()
    ground.kill()

    async def resumed():
        return not await ground.paused()

    await eventually(resumed, tell=ground.tell)
    ground.resumed_after_s = time.monotonic() - began


async def pd_restarted(ground):
    await ground.stores.restart_pd()
    await eventually(ground.stands_aside, tell=ground.tell)
    yield


async def store_lost(ground):
    ground.stores.lose_store()
    yield


STORIES = (nothing, killed, pd_restarted, store_lost)


async def play(ground, befalls):
    ground.start()
    await eventually(ground.stands_aside, tell=ground.tell)
    ground.stores.add_store()
    # Half of what it will hold.
    await eventually(lambda: ground.filled(3 * REGIONS // (STORES + 1) // 2), tell=ground.tell)
    story = befalls(ground)
    await anext(story)
    await eventually(ground.balanced, every_s=0.2, tell=ground.tell)
    with contextlib.suppress(StopAsyncIteration):
        await anext(story)


async def play_all(lab, directory, *, real_pd):
    async with HttpKubeApi(load(lab.kubeconfig)) as api:
        with contextlib.suppress(AlreadyExistsError):
            await api.create(Kind.CRD, CRD)
    async with contextlib.AsyncExitStack() as stack:
        grounds = [Environment(lab, directory, real_pd=real_pd) for _ in STORIES]
        for ground in grounds:
            ground.neighbours = [other.namespace for other in grounds if other is not ground]
            await stack.enter_async_context(ground)
        plays = (play(ground, befalls) for ground, befalls in zip(grounds, STORIES, strict=True))
        ends = await asyncio.gather(*plays, return_exceptions=True)
    return {befalls: (ground, end) for ground, befalls, end in zip(grounds, STORIES, ends, strict=True)}


@pytest.fixture(scope="module", params=["sandbox's PD", "real PD"])
def stories(request, lab, tmp_path_factory):
    real_pd = request.param == "real PD"
    if real_pd and lab.pd_server is None:
        pytest.skip("pd-server is not in MOORING_BIN_DIR: the sandbox's PD was asked instead")
    return asyncio.run(play_all(lab, tmp_path_factory.mktemp("balance"), real_pd=real_pd))


@pytest.fixture
def told(stories):
    """How a story ended; one that did not end well fails here."""

    def tell(befalls):
        ground, end = stories[befalls]
        if end is not None:
            raise end
        return ground

    return tell


@pytest.mark.parametrize("befalls", STORIES, ids=lambda befalls: befalls.__name__)
def test_a_store_is_added_and_fills_under_the_limit(told, befalls):
    """T12: five stores, 300 regions, one store added: balanced in the end, whatever happens midway (us killed -9, PD
    restarted, a store lost), no store was ever above its limit by ours, and none of ours began where PD's own left no
    room."""
    ground = told(befalls)
    assert 0 < ground.peak <= LIMIT, ground.above
    assert ground.pushed == set()


def test_while_pd_stands_aside_nobody_goes_above_the_limit(told):
    """T12: PD's own balancers are paused all the while: with everybody's operators counted, no store was above its
    limit."""
    ground = told(nothing)
    assert ground.others_until_released == {}
    assert ground.most_until_released <= LIMIT


def test_released_pd_is_back_at_once(told):
    """T12: `mooring balance release` resumes PD's balancers before it returns, and a running Mooring keeps its hands
    off."""
    ground = told(nothing)
    assert ground.paused_after_release == ground.paused_later == set()


def test_killed_for_good_pd_is_back_by_itself(told):
    """T12: nobody renews the pauses (10 s here, 60 s at most), so PD balances by itself again."""
    assert told(killed).resumed_after_s < 60
