"""PD over TLS, with the certificate in a TidbCluster's client Secret (E10): the sandbox's PD and, where one is at hand,
a real one; both ask every caller for a certificate."""

import base64
import contextlib
import ssl

import msgspec
import pytest
from aiohttp import web

from mooring.clients.pd.client_secret import REREAD_S, RETRY_S, ClientSecret
from mooring.clients.pd.transport import API, PdTransport
from mooring.clients.ports import NotFoundError, RefusedError, TlsError, UnansweredError
from mooring.core.model.cluster import Key
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.pd import SandboxPd
from mooring_lab.cluster.pd.http import pd_app
from mooring_lab.control.binaries import optional
from mooring_lab.control.loopback import free_ports
from mooring_lab.control.pki import Authority
from mooring_lab.control.processes import Processes
from mooring_lab.control.servers import NO_PD, pd_servers

NAME = Key("tidb", "demo-cluster-client-secret")


class Secrets:
    """The API server, for one Secret."""

    def __init__(self, authority=None):
        self.version, self.error, self.reads, self.data = 0, None, 0, {}
        if authority is not None:
            self.hold(authority)

    def hold(self, trusts, shows=None, **more):
        pair = (shows or trusts).client("mooring")
        held = {"ca.crt": trusts.pair.certificate, "tls.crt": pair.certificate, "tls.key": pair.key} | more
        self.data = {key: base64.b64encode(value).decode() for key, value in held.items()}
        self.version += 1

    async def get(self, _kind, namespace, name):
        assert Key(namespace, name) == NAME
        self.reads += 1
        if self.error is not None:
            raise self.error
        return {"metadata": {"resourceVersion": str(self.version)}, "data": self.data}


class Time:
    """As fast as it is told."""

    def __init__(self):
        self.at = 1000.0

    def now(self):
        return self.at

    async def sleep(self, seconds):
        self.at += seconds


def asked_for_certificates(authority, directory):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pair.certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(*authority.server("pd").write(directory, "pd"))
    return context


@contextlib.asynccontextmanager
async def sandbox_pd(authority, directory, port=0):
    runner = web.AppRunner(pd_app(SandboxPd(Timeline())), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=asked_for_certificates(authority, directory))
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def real_pd(authority, directory, port=0):
    program = optional("pd-server")
    if program is None:
        pytest.skip(NO_PD)
    certificate, key = authority.server("pd", member=True).write(directory, "pd")
    (directory / "ca.crt").write_bytes(authority.pair.certificate)
    ports = [port or free_ports(1)[0], *free_ports(1)]
    (plain,) = pd_servers(program, directory, ports)
    argv = (word.replace("http://", "https://") for word in plain.argv)
    files = (f"--cacert={directory / 'ca.crt'}", f"--cert={certificate}", f"--key={key}")
    server = msgspec.structs.replace(plain, argv=(*argv, *files), ready_url="")
    processes = Processes(directory, foreground=True)
    processes.start(server)
    try:
        yield ports[0]
    finally:
        processes.stop(server.name)


@pytest.fixture(params=[sandbox_pd, pytest.param(real_pd, marks=pytest.mark.e2e)], ids=["sandbox's PD", "real PD"])
def serve(request):
    return request.param


@contextlib.asynccontextmanager
async def asking(api, port, time=None, **more):
    time = time or Time()
    transport = PdTransport([f"https://127.0.0.1:{port}"], clock=time, secret=ClientSecret(api, NAME, time), **more)
    try:
        yield transport
    finally:
        await transport.close()


async def answered(transport, wall_clock):
    """A real one takes a second to listen."""
    for _ in range(100):
        try:
            return await transport.ask("GET", f"{API}/members")
        except TlsError:
            raise
        except UnansweredError:
            await wall_clock.sleep(0.1)
    raise AssertionError("PD never answered")


async def test_it_answers_the_certificate_of_the_secret_and_no_other(serve, tmp_path, wall_clock):
    """E10: with the Secret PD answers. A certificate of somebody else, or an authority that did not sign PD's, is an
    error of TLS that names the Secret and says what must be done."""
    ours, others = Authority(), Authority()
    async with serve(ours, tmp_path) as port:
        async with asking(Secrets(ours), port) as fits:
            assert (await answered(fits, wall_clock)).ok
        wrong = Secrets()
        for trusts, shows in ((ours, others), (others, ours)):
            wrong.hold(trusts, shows)
            async with asking(wrong, port) as refused:
                with pytest.raises(TlsError, match=f"certificate of Secret {NAME}") as caught:
                    await refused.ask("GET", f"{API}/members")
            assert str(NAME) in caught.value.remedy and "ca.crt" in caught.value.remedy


async def test_a_rotation_needs_no_restart(serve, tmp_path, wall_clock):
    """E10: PD gets certificates of a new authority and so does the Secret: the same client answers again by itself,
    at the latest one handshake after the Secret has changed."""
    before, after, time = Authority(), Authority(), Time()
    api = Secrets(before)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    async with serve(before, tmp_path / "old") as port, asking(api, port, time) as transport:
        assert (await answered(transport, wall_clock)).ok
        held = api.reads
        assert (await transport.ask("GET", f"{API}/members")).ok and api.reads == held, "kept for a minute"
    async with serve(after, tmp_path / "new", port), asking(api, port, time) as transport:
        with pytest.raises(TlsError):
            await answered(transport, wall_clock)
        api.hold(after)
        time.at += RETRY_S
        assert (await answered(transport, wall_clock)).ok


@pytest.mark.parametrize(
    ("breaks", "says", "to_do"),
    [
        (lambda api: setattr(api, "error", NotFoundError("404")), "is not there", "pd-client-secrets"),
        (lambda api: setattr(api, "error", RefusedError("forbidden")), "forbidden", f"--pd-client-secrets {NAME} "),
        (lambda api: api.hold(Authority(), **{"tls.key": b"x"}), "cannot be used", "get secret"),
        (lambda api: api.hold(Authority(), **{"tls.key": Authority().client("x").key}), "a pair", "get secret"),
        (lambda api: api.data.update({"ca.crt": "no base64"}), "cannot be used", "get secret"),
        (lambda api: api.data.clear(), "cannot be used", "get secret"),
    ],
    ids=["gone", "not allowed", "no key", "another key", "no authority", "empty"],
)
async def test_a_secret_that_cannot_be_used_says_what_to_do(breaks, says, to_do):
    """E10: nothing is sent without the certificate, and the error names the Secret and the command or the file."""
    api = Secrets(Authority())
    breaks(api)
    async with asking(api, 1) as transport:
        with pytest.raises(TlsError, match=says) as caught:
            await transport.ask("GET", f"{API}/members")
    assert str(NAME) in str(caught.value) and to_do in caught.value.remedy


async def test_a_silent_api_server_changes_nothing():
    """What was read last is used until the API server answers again."""
    time, api = Time(), Secrets(Authority())
    secret = ClientSecret(api, NAME, time)
    held = await secret.context()
    api.error = UnansweredError("no answer")
    time.at += REREAD_S
    assert await secret.context() is held and api.reads == 2


async def test_a_pd_that_an_administrator_named_needs_no_secret():
    """`--pd NS/CLUSTER=https://…` without a Secret: the system's authorities are trusted, as before."""
    api = Secrets()
    api.error = NotFoundError("404")
    assert (await ClientSecret(api, NAME, Time(), optional=True).context()).verify_mode is ssl.CERT_REQUIRED


async def test_asked_without_tls_it_says_that_it_speaks_tls(tmp_path):
    """A real PD says so in words, as Go's servers do: the remedy names the setting of the TidbCluster."""
    app = web.Application()

    async def plain(_):
        return web.Response(status=400, text="Client sent an HTTP request to an HTTPS server.\n")

    app.router.add_get("/{any:.*}", plain)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    transport = PdTransport([f"http://127.0.0.1:{runner.addresses[0][1]}"], clock=Time())
    try:
        with pytest.raises(TlsError, match="speaks TLS alone") as caught:
            await transport.ask("GET", f"{API}/members")
    finally:
        await transport.close()
        await runner.cleanup()
    assert "spec.tlsCluster.enabled" in caught.value.remedy
