"""A page on a port of this machine, for as long as something runs beside it."""

import socket
from collections.abc import Callable
from typing import Final

from aiohttp import web

from mooring.core.model.exits import UserError

PORT: Final = 8390
TRIED: Final = 20


def listen(port: int) -> socket.socket:
    """The socket of a page, bound before anything is said. One asked for and taken is the user's to change."""
    if not -1 <= port < 65536:
        raise UserError(f"--port {port}: a port is a number from 0 to 65535; give another, or leave it out")
    if port >= 0:
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError as error:
            raise UserError(f"--port {port}: {error.strerror}; give another, or leave it out") from None
    for candidate in range(PORT, PORT + TRIED):
        try:
            return socket.create_server(("127.0.0.1", candidate))
        except OSError:
            continue
    raise UserError(f"ports {PORT} to {PORT + TRIED - 1} are all taken; name a free one with --port")


class ServedPage:
    def __init__(self, make: Callable[[], web.Application], listener: socket.socket) -> None:
        self._make = make
        self._listener = listener
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    async def start(self) -> None:
        self._runner = web.AppRunner(self._make(), access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        self._listener.close()
