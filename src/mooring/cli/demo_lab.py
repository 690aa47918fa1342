"""`mooring demo --on lab`: the same day, with the same checks, on the real control plane."""

import asyncio
import shlex
import signal
import socket
import sys
import webbrowser
from typing import TYPE_CHECKING, Final

from mooring.cli.output import note
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from mooring.demo.day import Day
    from mooring.demo.onlab.stage import LabStage

RESTART: Final = "tidb.pingcap.com/restart"


def lab_stage(listener: socket.socket) -> "LabStage":
    """A stage that is not up yet; the page's port goes to `mooring run`, which opens it itself."""
    from mooring.demo.onlab.stage import LabStage
    from mooring.lab.binaries import find, release
    from mooring.lab.errors import LabError, WrongRequestError

    host, port = listener.getsockname()[:2]
    listener.close()
    try:
        binaries = find(release())
    except WrongRequestError as error:
        raise UserError(str(error)) from None
    except LabError as error:
        raise UserError(f"the real control plane is not here: {error}", Exit.COULD_NOT_LOOK) from None
    return LabStage(binaries, http=f"{host}:{port}", progress=lambda line: note(f"         … {line}"))


def opening(stage: "LabStage", port: int, *, taken: str, at: str, keep: bool) -> None:
    """Three lines: what this is, where, how to stop and what is kept."""
    note(
        f"Mooring demo: the same day on a real control plane, Kubernetes {stage.version}, on this machine's loopback: "
        "some six minutes."
    )
    note(f"page http://127.0.0.1:{port}{taken} once Mooring runs   ask it: mooring why pod/demo-tikv-1 -n tidb{at}")
    kept = "--keep: it goes on after the day" if keep else "--keep keeps it running"
    note(f"Ctrl-C stops. It lives in a temporary directory; leftovers: none ({kept}).\n")


def play(day: "Day", beside: "Beside") -> str:
    """Play it; why it could not be begun or went on, or "". Being asked to end is like Ctrl-C."""
    from mooring.clients.ports import PortError
    from mooring.lab.errors import LabError
    from mooring.process.serve import AddressTakenError

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        day.run(around=lambda _: beside)
    except (LabError, PortError, AssertionError, AddressTakenError) as error:
        told = str(error).splitlines()
        return told[0] if told else type(error).__name__
    finally:
        signal.signal(signal.SIGTERM, before)
    return ""


class Beside:
    """After the day: how to play on."""

    def __init__(self, stage: "LabStage", at: str, open_at: int, *, keep: bool) -> None:
        """`open_at`: the port of a page to open in a browser; 0: none."""
        self._stage = stage
        self._at = at
        self._open_at = open_at
        self._keep = keep

    async def start(self) -> None:
        """The page is `mooring run`'s own, and comes when that runs."""
        if self._open_at:
            self._stage.when_up(lambda: webbrowser.open(f"http://127.0.0.1:{self._open_at}"))

    async def keep(self) -> None:
        # A person watches: as on the sandbox. Without a terminal Ctrl-C could not end it.
        if not self._keep and not (self._stage.viewers and sys.stderr.isatty()):
            return
        lab = self._stage.lab
        note("\nThe day is over; the cluster runs on, page and all.")
        note(f"export KUBECONFIG={shlex.quote(str(lab.kubeconfig))}")
        note(f'Break it: {lab.layout.bin / "kubectl"} -n tidb annotate pod demo-tikv-0 {RESTART}=""')
        note(f"Ask it: mooring queue{self._at}   or: mooring why pod/demo-tikv-0 -n tidb{self._at}")
        note("Ctrl-C ends it; leftovers: none.")
        sys.stderr.flush()
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """The stage takes everything down."""
