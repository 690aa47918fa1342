"""The same day, with the same checks, on the real control plane."""

import asyncio
import shlex
import signal
import socket
import sys
import webbrowser
from collections.abc import Awaitable, Callable

from mooring.clients.ports import PortError
from mooring.core.model.exits import UserError
from mooring.process.serve import AddressTakenError
from mooring_lab.control.binaries import find, release
from mooring_lab.control.errors import LabError, WrongRequestError
from mooring_lab.demo.acts import LAB_ACTS
from mooring_lab.demo.day import Day
from mooring_lab.demo.onlab.stage import LabStage
from mooring_lab.demo.page import RESTART, ask_line


def lab_stage(listener: socket.socket, say: Callable[[str], None]) -> LabStage:
    """A stage that is not up yet; the page's port goes to `mooring run`, which opens it itself."""
    host, port = listener.getsockname()[:2]
    listener.close()
    try:
        binaries = find(release())
    except WrongRequestError:
        raise
    except LabError as error:
        raise UserError(f"the real control plane is not here: {error}", error.code) from None
    return LabStage(binaries, http=f"{host}:{port}", progress=lambda line: say(f"         … {line}"))


def play(day: Day, beside: "PlayOn") -> str:
    """Play it; why it could not be begun or went on, or "". Being asked to end is like Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        day.run(LAB_ACTS, around=lambda _: beside)
    except (LabError, PortError, AssertionError, AddressTakenError) as error:
        told = str(error).splitlines()
        return told[0] if told else type(error).__name__
    finally:
        signal.signal(signal.SIGTERM, before)
    return ""


class PlayOn:
    """After the day: how to play on."""

    def __init__(
        self,
        stage: LabStage,
        port: int,
        say: Callable[[str], None],
        *,
        keep: bool,
        open_: bool,
        at_end: Callable[[], Awaitable[None]],
    ) -> None:
        self._at_end = at_end
        self._stage = stage
        self._port = port
        self._say = say
        self._keep = keep
        self._open = open_

    async def start(self) -> None:
        """The page is `mooring run`'s own, and comes when that runs."""
        if self._open:
            self._stage.when_up(lambda: webbrowser.open(f"http://127.0.0.1:{self._port}"))

    async def keep(self) -> None:
        # A person watches: as on the sandbox. Without a terminal Ctrl-C could not end it.
        if not self._keep and not (self._stage.viewers and sys.stderr.isatty()):
            return
        await self._at_end()
        lab = self._stage.lab
        self._say("\nThe day is over; the cluster runs on, page and all.")
        self._say(f"export KUBECONFIG={shlex.quote(str(lab.kubeconfig))}")
        self._say(f'Break it: {lab.layout.bin / "kubectl"} -n tidb annotate pod demo-tikv-0 {RESTART}=""')
        self._say(ask_line(self._port))
        self._say("Ctrl-C ends it; leftovers: none.")
        sys.stderr.flush()
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """The stage takes everything down."""
