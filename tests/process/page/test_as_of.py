"""`why` as of a moment that has passed: the words that were said then, out of the black box."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from mooring.capabilities.handoff.requests import RESTART
from mooring.core.engine.why import explain, render
from mooring.core.model.kinds import Kind
from mooring.process.http import as_of
from mooring.process.http.as_of import AsOf
from mooring.process.http.status import status_app
from mooring.process.settings.config import BlackBoxSettings, Config
from tests.process.page.environment import on_stage


def recorded(directory):
    """A day on which one restart waits for another: the moment, and what `why` said of the second then."""

    async def look(stage):
        for name in ("demo-tikv-0", "demo-tikv-1"):
            stage.cluster.annotate(Kind.POD, "tidb", name, {RESTART: ""})
        leader = stage.rig.leader
        await stage.rig.until(lambda: leader().engine.waiting)
        await stage.rig.sleep(1.0)
        now = leader().shell.now()
        said = render(msgspec.to_builtins(explain(leader().engine, "pod/tidb/demo-tikv-1", now=now)))
        await stage.rig.until(lambda: not leader().engine.running and not leader().engine.waiting, limit_s=900)
        return now, said

    return on_stage(look, blackbox=str(directory))


@pytest.mark.timeout(400)
def test_why_answers_as_of_then(tmp_path):
    """O6: the words of then come back after all is over, and only for what can be asked about."""
    at, said = recorded(tmp_path)
    assert "waiting for op 1" in said[0], said

    async def ask():
        past = AsOf(lambda: str(tmp_path))
        found = await past.words("pod/tidb/demo-tikv-1", at)
        strange = await past.words("--help", at)
        early = await past.words("pod/tidb/demo-tikv-1", at - 86_400.0)
        return found, strange, early

    (words, status), strange, early = asyncio.run(ask())
    assert status == 200 and words.splitlines()[0] == said[0], words
    assert strange[1] == 404 and "nothing that can be asked about" in strange[0]
    assert early[1] == 404 and "is before the recording, which begins at" in early[0], early


async def test_without_a_black_box_or_memory_it_says_what_to_do(tmp_path, monkeypatch):
    """Nothing recorded: 501 and the flag. Too little memory: the command to type elsewhere, and nothing is run."""
    words, status = await AsOf(lambda: "").words("pod/a/b", 1_767_261_782.0)
    assert status == 501 and "--blackbox DIR" in words
    monkeypatch.setattr(as_of, "_free", lambda: 1)
    words, status = await AsOf(lambda: str(tmp_path)).words("pod/a/b", 1_767_261_782.0)
    assert status == 503 and words.endswith(f"mooring replay {tmp_path} --until 2026-01-01T10:03:02.000Z why pod/a/b\n")


async def test_few_questions_wait_for_a_replay(tmp_path):
    """Issue 42: each costs a process of up to two minutes. One is answered and two wait; more are told what to type
    elsewhere at once, and there is place again when those have ended."""
    past = AsOf(lambda: str(tmp_path))
    asked = [past.words("pod/a/b", 1_767_261_782.0) for _ in range(6)]
    answers = await asyncio.gather(*asked)
    assert sorted(status for _, status in answers) == [404] * 3 + [503] * 3
    assert all("questions wait for a replay" in words for words, status in answers if status == 503)
    assert (await past.words("pod/a/b", 1_767_261_782.0))[1] == 404


async def test_the_page_asks_its_replicas_own_black_box():
    """`?at=` takes a moment and nothing else."""
    replica = SimpleNamespace(config=Config(blackbox=BlackBoxSettings(dir="")))
    async with TestClient(TestServer(status_app(lambda: replica))) as client:
        answer = await client.get("/api/v1/say/pod/a/b?at=1767261782.5")
        assert answer.status == 501 and "As of 2026-01-01T10:03:02.500" in await answer.text()
        assert (await client.get("/api/v1/say/pod/a/b?at=now")).status == 400
