"""`mooring run` as it is, in this process: real clients, listeners and certificates; what it writes is counted."""

import asyncio
from collections.abc import Callable

import msgspec

from mooring.clients.kube import HttpKubeApi, Scope
from mooring.clients.kube.config import Connection
from mooring.core.model.kinds import Kind
from mooring.process.http.page import Page
from mooring.process.replica import Replica
from mooring.process.serve import live
from mooring.process.settings.config import Config, Resolved
from mooring.sim.gate import Gate, GatedApi


class RunningProcess:
    """One replica. Settings are read again as `mooring run` reads its file: a feature switched on is taken over."""

    def __init__(self, connection: Connection, config: Config) -> None:
        self._connection = connection
        self.config = config
        self.writes: list[str] = []
        self.replica: Replica | None = None
        self.page: Page | None = None
        #: Who wants to know the page when it is there.
        self.opened: Callable[[Page], None] = lambda _: None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._live(), name="mooring")

    def switch_on(self, feature: str) -> None:
        self.config = msgspec.structs.replace(self.config, features={**self.config.features, feature: True})

    def use_pd(self, cluster: str, url: str) -> None:
        """As `--pd NS/CLUSTER=URL`; before it starts."""
        self.config = msgspec.structs.replace(self.config, pd={**self.config.pd, cluster: (url,)})

    def check(self) -> None:
        """Raises if it has crashed, so that it is not waited for."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    async def stop(self) -> None:
        """As SIGTERM: what is under way ends, webhooks go, the lease is given back."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _live(self) -> None:
        def settings() -> Resolved:
            return Resolved(self.config, {}, [])

        def on_replica(replica: Replica) -> None:
            self.replica = replica

        def opened(page: Page) -> None:
            self.page = page
            self.opened(page)

        scopes = {Kind.CONFIG_MAP: Scope(namespace=self.config.namespace)}
        async with HttpKubeApi(self._connection, scopes=scopes) as api:
            gated = GatedApi(api, Gate(self._count, _never_kill))
            await live(
                self.config,
                settings,
                gated,
                self._connection.server,
                lambda _: None,
                on_replica=on_replica,
                opened=opened,
            )

    def _count(self, what: str, when: str) -> bool:
        if when == "before":
            self.writes.append(what)
        return False


def _never_kill() -> None:
    """The gate only counts here."""
