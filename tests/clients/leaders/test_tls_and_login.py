"""L2: how etcd and Patroni are reached: TLS with the Secret's CA and client certificate, and a login, over real sockets."""

import base64
import datetime as dt
import functools
import itertools
import ssl
import time

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.x509.oid import ExtendedKeyUsageOID

from mooring.clients.ports import RefusedError, UnansweredError
from mooring.clients.x509 import issue_authority, issue_leaf, name, new_key, pem, private_pem
from mooring.core.model.cluster import Key, Workload
from mooring.core.model.events import Listed
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LEADERS, LEADERS_ENDPOINT, LEADERS_SECRET
from mooring.core.world.world import World
from mooring.process.clock import WallClock
from mooring.process.leader_directory import FRESH_S, LeaderDirectory
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.leaders import LedSystem

LIFE = dt.timedelta(days=1)
VERSIONS = itertools.count(1)
MEMBERS = ("db-0", "db-1", "db-2")


class Authority:
    def __init__(self, common: str) -> None:
        self._key = new_key()
        self.certificate = issue_authority(name(common), self._key, dt.datetime.now(dt.UTC), LIFE)
        self.pem = pem(self.certificate)

    def issue(self, usage) -> tuple[bytes, bytes]:
        key, hosts = new_key(), ("localhost", "127.0.0.1")
        now = dt.datetime.now(dt.UTC)
        leaf = issue_leaf(name("x"), key, self.certificate, self._key, now, LIFE, usages=[usage], hosts=hosts)
        return pem(leaf), private_pem(key)


class Fast(WallClock):
    """A clock on which time may be passed over."""

    ahead_s = 0.0

    def now(self) -> float:
        return time.time() + self.ahead_s


class System:
    """Three members of the stand-in behind sockets of their own, and what a Mooring has to reach them."""

    def __init__(self, driver: str, tls: ssl.SSLContext | None = None, login: str = "") -> None:
        self.driver, self._tls, self._login = driver, tls, login
        self.system = LedSystem(Timeline(), driver, ("data", "db"))
        self._servers: list[TestServer] = []
        self.cluster, self.world, self.clock = Cluster(seed=1), World(), Fast()
        self.directory = LeaderDirectory(
            self.world, self.cluster.api.as_client("mooring"), self.clock, ("127.0.0.1:*", "localhost:*")
        )

    async def __aenter__(self) -> "System":
        for member in MEMBERS:
            self.system.started(member)
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", functools.partial(self._answer, member))
            server = TestServer(app, scheme="https" if self._tls else "http")
            await server.start_server(ssl=self._tls)
            self._servers.append(server)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.directory.close()
        for server in self._servers:
            await server.close()

    async def _answer(self, member: str, request: web.Request) -> web.Response:
        if self._login and request.headers.get("Authorization") != self._login:
            return web.Response(status=401, text="no auth header received")
        body = await request.json() if request.can_read_body else None
        status, found = self.system.answer(member, request.method, request.path, body)
        return web.Response(status=status, body=found)

    def told(self, secret: str = "") -> None:
        """The StatefulSet, as the watch shows it."""
        urls = ",".join(str(server.make_url("")).rstrip("/") for server in self._servers)
        annotations = {LEADERS: self.driver, LEADERS_ENDPOINT: urls} | ({LEADERS_SECRET: secret} if secret else {})
        row = Workload("StatefulSet", "data", "db", "u", str(next(VERSIONS)), replicas=3, annotations=annotations)
        self.world.apply(Listed(Kind.STATEFUL_SET, (row,)))

    def secret(self, **data: bytes) -> None:
        body = {key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()}
        obj = {"metadata": {"namespace": "data", "name": "client"}, "data": body}
        if self.cluster.store.find(Kind.SECRET, "data", "client") is None:
            self.cluster.store.create(Kind.SECRET, obj)
        else:
            self.cluster.store.patch(Kind.SECRET, "data", "client", {"data": body})

    async def read(self):
        return await (await self.directory.driver(Key("data", "db"))).read()


def demanding(server: Authority, clients: Authority, tmp_path) -> ssl.SSLContext:
    """A server that shows a certificate and asks for one, as etcd with `--client-cert-auth`."""
    certificate, key = server.issue(ExtendedKeyUsageOID.SERVER_AUTH)
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=clients.pem.decode())
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.mark.parametrize("driver", ["etcd", "patroni"])
async def test_the_secrets_authority_is_trusted_and_its_certificate_shown(driver, tmp_path):
    """L2: with both it is read, and leadership is moved; a server of another authority and a client without a
    certificate are no answer, and never a view in which nobody leads."""
    ours, clients, stranger = Authority("ours"), Authority("clients"), Authority("stranger")
    async with System(driver, demanding(ours, clients, tmp_path)) as system:
        certificate, key = clients.issue(ExtendedKeyUsageOID.CLIENT_AUTH)
        system.told("client")
        system.secret(ca_crt=stranger.pem, tls_crt=certificate, tls_key=key)
        with pytest.raises(UnansweredError, match=r"(?i)certificate"):
            await system.read()
        system.clock.ahead_s += FRESH_S + 1  # a Secret that was changed is used within a minute
        system.secret(ca_crt=ours.pem)
        view = await system.read()
        assert [m.pod for m in view.members if m.leaders] == ["db-0"] and all(m.is_well for m in view.members)
        await (await system.directory.driver(Key("data", "db"))).move_off("db-0", "db-1")
        assert (await system.read()).leader == "db-1"
        system.clock.ahead_s += FRESH_S + 1
        strange, strange_key = stranger.issue(ExtendedKeyUsageOID.CLIENT_AUTH)
        system.secret(tls_crt=strange, tls_key=strange_key)
        with pytest.raises(UnansweredError):
            await system.read()


@pytest.mark.parametrize("driver", ["etcd", "patroni"])
async def test_a_login_of_the_secret_is_sent(driver):
    """L2: Patroni's `restapi.authentication`, or a proxy before etcd: without it, or with another, 401 is no answer."""
    async with System(driver, login=f"Basic {base64.b64encode(b'mooring:s3cret').decode()}") as system:
        system.told()
        with pytest.raises(UnansweredError, match="401"):
            await system.read()
        system.told("client")
        system.secret(username=b"mooring", password=b"wrong")
        with pytest.raises(UnansweredError, match="401") as caught:
            await system.read()
        assert "wrong" not in str(caught.value)
        system.clock.ahead_s += FRESH_S + 1
        system.secret(password=b"s3cret")
        assert (await system.read()).leader == "db-0"


async def test_a_secret_that_cannot_be_used_keeps_the_pods_and_says_so(tmp_path):
    """L2: one that is not there, certificates that do not fit each other, and text that is none."""
    ours = Authority("ours")
    async with System("etcd", demanding(ours, ours, tmp_path)) as system:
        system.told("client")
        with pytest.raises(RefusedError, match="client, which does not exist"):
            await system.read()
        certificate, _ = ours.issue(ExtendedKeyUsageOID.CLIENT_AUTH)
        _, another = ours.issue(ExtendedKeyUsageOID.CLIENT_AUTH)
        for data in (
            {"ca_crt": ours.pem, "tls_crt": certificate, "tls_key": another},
            {"ca_crt": b"none", "tls_crt": certificate, "tls_key": another},
            {"ca_crt": b"\xff\xfe", "tls_crt": b"", "tls_key": b""},
        ):
            system.secret(**data)
            system.clock.ahead_s += FRESH_S + 1
            with pytest.raises(RefusedError, match="do not fit"):
                await system.read()


async def test_a_redirect_and_a_flood_are_no_answers():
    """L2: no redirect is followed, a body has a limit."""

    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://169.254.169.254/")

    async def flood(_: web.Request) -> web.Response:
        return web.Response(body=b" " * (3 << 20))

    for handler, says in ((elsewhere, "redirect"), (flood, "more than is read")):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        async with TestServer(app) as server, System("etcd") as system:
            system._servers.append(server)
            url = str(server.make_url("")).rstrip("/")
            row = Workload(
                "StatefulSet",
                "data",
                "db",
                "u",
                "1",
                replicas=3,
                annotations={LEADERS: "etcd", LEADERS_ENDPOINT: url},
            )
            system.world.apply(Listed(Kind.STATEFUL_SET, (row,)))
            with pytest.raises(UnansweredError, match=says):
                await system.read()
