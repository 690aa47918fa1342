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
from mooring_lab.control.servers import NO_PD
from mooring_lab.demo.onlab.rig import PATIENT_S
from tests.e2e.balance_environment import LIMIT, REGIONS, STORES, Environment
from tests.e2e.spine_environment import CRD
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e


async def nothing(environment):
    """Nothing happens midway; in the end PD gets its regions back."""
    yield
    environment.others_until_released, environment.most_until_released = (
        dict(environment.others),
        environment.peak_of_all,
    )
    await environment.release()
    environment.paused_after_release = await environment.paused()
    await asyncio.sleep(4)
    environment.paused_later = await environment.paused()


async def killed(environment):
    """kill -9, and another starts; in the end it is killed for good."""
    environment.kill()
    environment.start()
    yield
    began = time.monotonic()
    environment.kill()

    async def resumed():
        return not await environment.paused()

    await eventually(resumed, tell=environment.tell)
    environment.resumed_after_s = time.monotonic() - began


async def pd_restarted(environment):
    await environment.stores.restart_pd()
    await eventually(environment.stands_aside, tell=environment.tell)
    yield


async def store_lost(environment):
    environment.stores.lose_store()
    yield


STORIES = (nothing, killed, pd_restarted, store_lost)


async def play(environment, befalls):
    environment.start()
    await eventually(environment.stands_aside, tell=environment.tell)
    environment.stores.add_store()
    # Half of what it will hold.
    await eventually(lambda: environment.filled(3 * REGIONS // (STORES + 1) // 2), tell=environment.tell)
    story = befalls(environment)
    await anext(story)
    await eventually(environment.balanced, every_s=0.2, tell=environment.tell)
    with contextlib.suppress(StopAsyncIteration):
        await anext(story)


async def play_all(lab, directory, *, real_pd):
    async with HttpKubeApi(load(lab.kubeconfig), write_timeout_s=PATIENT_S) as api:
        with contextlib.suppress(AlreadyExistsError):
            await api.create(Kind.CRD, CRD)
    async with contextlib.AsyncExitStack() as stack:
        environments = [Environment(lab, directory, real_pd=real_pd) for _ in STORIES]
        for environment in environments:
            environment.neighbours = [other.namespace for other in environments if other is not environment]
            await stack.enter_async_context(environment)
        plays = (play(environment, befalls) for environment, befalls in zip(environments, STORIES, strict=True))
        ends = await asyncio.gather(*plays, return_exceptions=True)
    return {befalls: (environment, end) for environment, befalls, end in zip(environments, STORIES, ends, strict=True)}


@pytest.fixture(scope="module", params=["sandbox's PD", "real PD"])
def stories(request, lab, tmp_path_factory):
    real_pd = request.param == "real PD"
    if real_pd and lab.pd_server is None:
        pytest.skip(NO_PD)
    return asyncio.run(play_all(lab, tmp_path_factory.mktemp("balance"), real_pd=real_pd))


@pytest.fixture
def told(stories):
    """How a story ended; one that did not end well fails here."""

    def tell(befalls):
        environment, end = stories[befalls]
        if end is not None:
            raise end
        return environment

    return tell


@pytest.mark.parametrize("befalls", STORIES, ids=lambda befalls: befalls.__name__)
def test_a_store_is_added_and_fills_under_the_limit(told, befalls):
    """T12: five stores, 300 regions, one store added: balanced in the end, whatever happens midway (us killed -9, PD
    restarted, a store lost), no store was ever above its limit by ours, and none of ours began where PD's own left no
    room."""
    environment = told(befalls)
    assert 0 < environment.peak <= LIMIT, environment.above
    assert environment.pushed == set()


def test_while_pd_stands_aside_nobody_goes_above_the_limit(told):
    """T12: PD's own balancers are paused all the while: with everybody's operators counted, no store was above its
    limit. Its hot scheduler is not: it moves hot peers, and ours does not."""
    environment = told(nothing)
    assert environment.paused_too == set()
    assert environment.others_until_released == {}
    assert environment.most_until_released <= LIMIT


def test_released_pd_is_back_at_once(told):
    """T12: `mooring balance release` resumes PD's balancers before it returns, and a running Mooring keeps its hands
    off."""
    environment = told(nothing)
    assert environment.paused_after_release == environment.paused_later == set()


def test_killed_for_good_pd_is_back_by_itself(told):
    """T12: nobody renews the pauses (10 s here, 60 s at most), so PD balances by itself again."""
    assert told(killed).resumed_after_s < 60
