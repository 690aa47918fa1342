"""Real systems with leaders on loopback, one process (group) per member: what bench and e2e stand on."""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from mooring.clients.leaders import DRIVERS
from mooring.clients.leaders.ask import HttpAsk
from mooring.clients.ports import PortError, UnansweredError
from mooring.core.model.leaders import LeaderView
from mooring_lab.control.binaries import cache_dir, release
from mooring_lab.control.loopback import free_ports

MEMBERS = ("db-0", "db-1", "db-2")


class RealMembers:
    """`addresses` by pod; `stop` and `start` a member; `write` as a client of the system does."""

    driver_name = ""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="mooring-led-"))
        self.root.chmod(0o755)
        self.members = MEMBERS
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses: dict[str, str] = {}
        self._http = HttpAsk()

    @property
    def driver(self) -> Any:
        return DRIVERS[self.driver_name](self._http, self.addresses)

    async def start(self, name: str) -> None:
        argv, as_user = self._argv(name)
        with (self.root / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                argv, stdout=log, stderr=log, start_new_session=True, user=as_user or None, cwd=self.root
            )

    async def stop(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        child = self._running.pop(name, None)
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if how is signal.SIGKILL:  # the whole member dies, not its supervisor alone
                os.killpg(child.pid, how)
            else:
                child.send_signal(how)
        await asyncio.to_thread(child.wait)

    async def until(self, holds: Callable[[LeaderView], bool], within_s: float = 120.0) -> LeaderView:
        end, said = time.monotonic() + within_s, "nothing"
        while time.monotonic() < end:
            try:
                view = await self.driver.read()
            except PortError as error:
                said = str(error)
            else:
                if holds(view):
                    return view
                said = str(view)
            await asyncio.sleep(0.3)
        raise AssertionError(f"not within {within_s:g} s: {said}\n{self.logs()}")

    def logs(self) -> str:
        return "\n".join(f"{p.name}: {p.read_text(errors='replace')[-1500:]}" for p in self.root.glob("*.log"))

    async def close(self) -> None:
        for name in list(self._running):
            await self.stop(name)
        await self._http.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def _argv(self, name: str) -> tuple[list[str], str]:
        raise NotImplementedError

    async def write(self, number: int) -> bool:
        """One write, as a client with a one-second time-out; False: it failed."""
        raise NotImplementedError


class EtcdMembers(RealMembers):
    driver_name = "etcd"

    def __init__(self) -> None:
        super().__init__()
        ports = free_ports(6)
        self._ports = {name: (ports[2 * i], ports[2 * i + 1]) for i, name in enumerate(MEMBERS)}
        self.addresses = {name: f"http://127.0.0.1:{client}" for name, (client, _) in self._ports.items()}
        self._turn = 0
        self._session: aiohttp.ClientSession | None = None

    @staticmethod
    def missing() -> str:
        path = cache_dir(release()) / "etcd"
        return "" if path.exists() or shutil.which("etcd") else "no etcd: mooring lab build"

    def _argv(self, name: str) -> tuple[list[str], str]:
        client, peer = self._ports[name]
        found = cache_dir(release()) / "etcd"
        all_members = ",".join(f"{n}=http://127.0.0.1:{p}" for n, (_, p) in self._ports.items())
        return [
            str(found if found.exists() else shutil.which("etcd")),
            *("--name", name, "--data-dir", str(self.root / name)),
            *("--listen-client-urls", f"http://127.0.0.1:{client}"),
            *("--advertise-client-urls", f"http://127.0.0.1:{client}"),
            *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--initial-cluster", all_members, "--log-level", "warn"),
        ], ""

    async def write(self, number: int) -> bool:
        """As etcd's clients: the same endpoint as long as it answers, else the next one at once."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1.0))
        for _ in MEMBERS:
            base = self.addresses[MEMBERS[self._turn % len(MEMBERS)]]
            try:
                body = {"key": "bnVtYmVy", "value": "MQ=="}
                async with self._session.post(f"{base}/v3/kv/put", json=body) as response:
                    if response.status == 200:
                        return True
                    self._turn += 1
                    return False
            except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError, ConnectionResetError):
                self._turn += 1  # nobody is there: its clients ask the next one without an error
            except (aiohttp.ClientError, TimeoutError):
                self._turn += 1
                return False
        return False

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        await super().close()


class PatroniMembers(RealMembers):
    """PostgreSQL under Patroni, its store an etcd of one member that nobody disturbs."""

    driver_name = "patroni"

    def __init__(self) -> None:
        super().__init__()
        ports = free_ports(8)
        self._ports = {name: (ports[2 * i], ports[2 * i + 1]) for i, name in enumerate(MEMBERS)}
        self.addresses = {name: f"http://127.0.0.1:{rest}" for name, (rest, _) in self._ports.items()}
        self._store_ports = ports[6], ports[7]
        self._user = "postgres" if os.geteuid() == 0 else ""
        if self._user:
            found = pwd.getpwnam(self._user)
            os.chown(self.root, found.pw_uid, found.pw_gid)
        self._connection: Any = None

    @staticmethod
    def patroni() -> str:
        return os.environ.get("MOORING_PATRONI") or shutil.which("patroni") or ""

    @staticmethod
    def missing() -> str:
        if not Path(PatroniMembers.patroni() or "/nowhere").exists():
            return "no patroni: pip install 'patroni[etcd3]' psycopg2-binary (or MOORING_PATRONI=its path)"
        if not list(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
            return "no PostgreSQL: apt-get install postgresql"
        return EtcdMembers.missing()

    async def start(self, name: str) -> None:
        if "store" not in self._running:
            client, peer = self._store_ports
            found = cache_dir(release()) / "etcd"
            binary = str(found if found.exists() else shutil.which("etcd"))
            url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
            urls = ["--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer_url]
            argv = [binary, "--data-dir", str(self.root / "store"), *urls, "--log-level", "warn"]
            with (self.root / "store.log").open("ab") as log:
                self._running["store"] = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
            await asyncio.sleep(1.5)
        await super().start(name)

    async def stop(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Killed, its PostgreSQL is gone with it: it has a session of its own."""
        if how is signal.SIGKILL:
            with contextlib.suppress(OSError, ValueError, IndexError):
                os.kill(int((self.root / name / "postmaster.pid").read_text().split()[0]), how)
        await super().stop(name, how)

    def _argv(self, name: str) -> tuple[list[str], str]:
        rest, port = self._ports[name]
        path = self.root / f"{name}.yml"
        bin_dir = str(max(Path("/usr/lib/postgresql").glob("*/bin")))
        path.write_text(yaml.safe_dump({
            "scope": "db", "name": name,
            "restapi": {"listen": f"127.0.0.1:{rest}", "connect_address": f"127.0.0.1:{rest}"},
            "etcd3": {"host": f"127.0.0.1:{self._store_ports[0]}"},
            "bootstrap": {
                "dcs": {"ttl": 30, "loop_wait": 5, "retry_timeout": 5, "maximum_lag_on_failover": 1 << 20,
                        "postgresql": {"use_pg_rewind": True, "parameters": {"max_connections": 30}}},
                "initdb": [{"encoding": "UTF8"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{port}", "connect_address": f"127.0.0.1:{port}", "bin_dir": bin_dir,
                "data_dir": str(self.root / name), "pgpass": str(self.root / f"{name}.pgpass"),
                "pg_hba": ["local all all trust", "host all all 127.0.0.1/32 trust",
                           "host replication all 127.0.0.1/32 trust"],
                "authentication": {"superuser": {"username": "postgres"}, "replication": {"username": "replicator"}},
                "parameters": {"unix_socket_directories": str(self.root)},
            },
        }))  # fmt: skip
        return [self.patroni(), str(path)], self._user

    async def write(self, number: int) -> bool:
        """As libpq with every host and `target_session_attrs=read-write`."""
        hosts = ",".join("127.0.0.1" for _ in MEMBERS)
        ports = ",".join(str(port) for _, port in self._ports.values())
        sql = "create table if not exists n (i int); insert into n values (1)"
        where = f"host={hosts} port={ports} user=postgres dbname=postgres connect_timeout=1"
        psql = ["psql", "-qtAX", "-c", sql, f"{where} target_session_attrs=read-write"]
        child = await asyncio.create_subprocess_exec(*psql, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            async with asyncio.timeout(2.0):
                return await child.wait() == 0
        except TimeoutError:
            child.kill()
            await child.wait()
            return False


SYSTEMS: dict[str, type[RealMembers]] = {"etcd": EtcdMembers, "patroni": PatroniMembers}
__all__ = ["MEMBERS", "SYSTEMS", "EtcdMembers", "PatroniMembers", "RealMembers", "UnansweredError"]
