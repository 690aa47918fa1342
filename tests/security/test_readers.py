"""Readers of the page's port: what one of them asks for, or does not take, holds nobody up."""

import asyncio
import contextlib
import time
from types import SimpleNamespace

import aiohttp
import msgspec
import pytest
from aiohttp import web

from mooring.core.engine.why.names import nearest, unknown
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, write_mark
from mooring.core.model.spelling import did_you_mean
from mooring.process.http import status
from mooring.process.http.intake import LISTEN
from mooring_lab.rehearse.events.catalog import natural
from mooring_lab.stage.scenarios.mix import slow_template, switched_on
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.security.test_marks import mark


@contextlib.asynccontextmanager
async def recording(tmp_path, size=64 << 20):
    """A replica that has recorded this much; answers with the URL."""
    part = tmp_path / "1.blackbox"
    part.write_bytes(b"x" * size)
    replica = SimpleNamespace(blackbox=SimpleNamespace(paths=[part]))
    app = status.status_app(lambda: replica)
    runner = web.AppRunner(app, **LISTEN)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/api/v1/blackbox"
    finally:
        await runner.cleanup()


async def test_those_who_fetch_and_do_not_read_use_up_no_files(tmp_path, monkeypatch):
    """Each holds the files of the recording open: a few may, the next is told so, and who reads nothing is cut off."""
    monkeypatch.setattr(status, "UNREAD_S", 0.5)
    async with recording(tmp_path) as url, aiohttp.ClientSession(read_bufsize=1024) as session:
        idle = [await session.get(url) for _ in range(status.MOST_FETCHING)]
        async with session.get(url) as refused:
            assert refused.status == 503 and "try again" in (await refused.json())["error"]
        for _ in range(100):
            await asyncio.sleep(0.1)
            async with session.get(url) as again:
                if again.status == 200:
                    assert len(await again.read()) == 64 << 20
                    break
        else:
            pytest.fail("those that read nothing keep their places")
        for one in idle:
            one.close()


async def test_head_reads_no_recording(tmp_path):
    async with recording(tmp_path, 1024) as url, aiohttp.ClientSession() as session, session.head(url) as answer:
        assert answer.status == 405


@pytest.mark.parametrize("typed", ["shop/app-17-abcdefghij-xxxxx", "a" * 8000, "shop-1/app-1-" + "e" * 40])
def test_a_name_that_is_misspelled_costs_a_leader_no_second(typed):
    """Ten thousand pods: comparing the typed name with each of them held the loop for 0.7 s."""
    names = [f"shop-{n % 40}/app-{n}-{n * 7919 % 99991:05d}qwert-{n * 104729 % 99991:05d}" for n in range(10_000)]
    took = []
    for _ in range(3):
        began = time.process_time()
        nearest(typed, names)
        took.append(time.process_time() - began)
    assert min(took) < 0.35
    assert did_you_mean(names[4711][:-1], names) == f"; did you mean {names[4711]}?"


@pytest.mark.parametrize("number", ["9" * 5000, "²", "٣"])
def test_a_mark_may_name_any_operator(number):
    """A tenant's pod says that an operator of this name moves it, and a new leader reads it: the page and `why` answer
    all the same."""

    async def scenario(stage: Stage) -> None:
        labels = switched_on("all-in-spot")
        stage.cluster.deployment("shop", "web", 1, labels=labels, template=slow_template("web", 2.0))
        await stage.rig.until(lambda: stage.cluster.ready("shop", "web") == 1)
        (pod,) = stage.cluster.store.list(Kind.POD, "shop")
        owner = stage.cluster.store.get(Kind.DEPLOYMENT, "shop", "web")["metadata"]["uid"]
        before = {"workload": "Deployment/shop/web", "workloadUID": owner, "class": "on-demand"}
        forged = msgspec.structs.replace(mark(pod["metadata"]["uid"], **before), operator=number)
        stage.cluster.annotate(Kind.POD, "shop", pod["metadata"]["name"], {LEAVING: write_mark(forged)})
        stage.rig.kill()
        stage.rig.start("second")
        await stage.rig.sleep(30.0)
        leader = stage.rig.leader()
        assert leader is not None
        ids = [entry.id for entry in leader.engine.history.timeline if entry.verb == "resumed"]
        assert ids and all(one.isascii() and one.isdecimal() and len(one) < 16 for one in ids)
        assert "operator" in unknown(leader.engine, f"operator/{number}")

    Stage(on_demand=2, spot=2).play(scenario)


def test_a_snapshot_may_have_any_name():
    assert natural("n" + "7" * 5000) > natural("n7")
