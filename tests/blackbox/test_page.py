"""Issue 23, ask: queue, top and the page on a recording, the page with the scrubber."""

import asyncio
import json
import re

from aiohttp.test_utils import TestClient, TestServer

from mooring.cli import app
from mooring.process.blackbox.file import RecordingFile
from mooring.process.http.recorded import RecordedPage
from tests.blackbox.environment import INCIDENTS

RESTART = INCIDENTS / "restart.blackbox"


def run(*words):
    return app([*map(str, words)], exit_on_error=False, print_error=False, result_action="return_value")


def test_top_shows_the_moment(capsys):
    assert run("replay", RESTART, "--until", "op 1 promoted", "top") == 0
    shown = capsys.readouterr().out
    assert re.search(r"moving +1 +handoff +evict leaders tidb/demo-tikv-0", shown)
    assert shown.startswith(
        "✓ Safe: 1 move under way\n"
        "Mooring  second · recorded in restart.blackbox, as of 2026-01-01T00:00:03Z · leader second\n"
    )
    assert run("replay", RESTART, "--until", "op 1 promoted", "top", "-o", "json") == 0
    frame = json.loads(capsys.readouterr().out)
    assert [row["op"] for row in frame["tables"]["queue"]["rows"].values()] == ["1"]
    assert frame["recorded"] == "restart.blackbox"


def test_the_page_has_the_frames_and_answers_why_as_of_each():
    """The frames are those of a recording and nothing else; `why` of the first moment is not that of the last."""

    async def whole():
        page = RecordedPage(RecordingFile(RESTART), float("inf"))
        frames = await page.film()
        async with TestClient(TestServer(page.app())) as client:
            index = await (await client.get("/api/v1/past")).json()
            piece = await (await client.get(f"/api/v1/past/{index['pieces'][0]['seq']}")).text()
            last = await (await client.get("/api/v1/frame")).json()
            heads = [json.loads(line[6:])["as_of"] for line in piece.splitlines() if line.startswith("data: ")]
            at = next(moment for moment in heads if moment > heads[0] + 5.0)
            then = await (await client.get(f"/api/v1/say/pod/tidb/demo-tikv-0?at={at}")).text()
            now = await (await client.get("/api/v1/say/pod/tidb/demo-tikv-0")).text()
            return frames, index, heads, last, then, now

    frames, index, heads, last, then, now = asyncio.run(whole())
    assert index["recording"] == "restart.blackbox"
    assert sum(piece["frames"] for piece in index["pieces"]) == frames > 10
    assert heads == sorted(heads)
    assert last["as_of"] == index["pieces"][-1]["ended"]
    assert then.startswith("demo-tikv-0 is moving")
    assert now.startswith("demo-tikv-0 is stable")
