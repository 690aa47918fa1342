"""Issue 23, hand over: the recording of a running Mooring comes over its HTTP, with its token."""

import asyncio

import pytest
from aiohttp import web

from mooring.cli.blackbox import pull
from mooring.cli.server import Reach
from mooring.core.model.exits import UserError
from mooring.process.blackbox.file import RecordingFile
from mooring.process.blackbox.writer import BlackBox, header_of
from mooring.process.http.status import status_app
from mooring.process.settings.config import Config


class Replica:
    """As far as the route looks at one."""

    def __init__(self, box):
        self.blackbox = box


def pulled(box, to, token=""):
    async def whole():
        app = status_app(lambda: Replica(box), token=token, on_loopback=not token)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            await asyncio.to_thread(pull, to=str(to), reach=Reach(server=f"http://127.0.0.1:{port}"))
        finally:
            await runner.cleanup()

    asyncio.run(whole())


@pytest.fixture
def box(tmp_path):
    made = BlackBox(tmp_path / "box", header_of(Config(), "one", 1_767_225_600.0), 1 << 20, lambda _: None)
    made.close()
    return made


def test_the_recording_comes_whole(box, tmp_path):
    pulled(box, tmp_path / "got.blackbox")
    assert (tmp_path / "got.blackbox").read_bytes() == box.paths[0].read_bytes()
    assert RecordingFile(tmp_path / "got.blackbox").header.identity == "one"
    assert (tmp_path / "got.blackbox").stat().st_mode & 0o777 == 0o600


def test_without_a_recording_it_is_said_and_no_file_is_left(tmp_path):
    with pytest.raises(UserError, match="--blackbox DIR"):
        pulled(None, tmp_path / "got.blackbox")
    assert not (tmp_path / "got.blackbox").exists()


def test_a_file_that_is_there_is_not_replaced(box, tmp_path):
    (tmp_path / "got.blackbox").write_text("mine")
    with pytest.raises(UserError, match="File exists"):
        pulled(box, tmp_path / "got.blackbox")
    assert (tmp_path / "got.blackbox").read_text() == "mine"


def test_off_loopback_the_token_is_wanted(box, tmp_path, monkeypatch):
    monkeypatch.delenv("MOORING_HTTP_TOKEN", raising=False)
    with pytest.raises(UserError, match="401"):
        pulled(box, tmp_path / "got.blackbox", token="hush")
    monkeypatch.setenv("MOORING_HTTP_TOKEN", "hush")
    pulled(box, tmp_path / "got.blackbox", token="hush")
    assert (tmp_path / "got.blackbox").exists()
