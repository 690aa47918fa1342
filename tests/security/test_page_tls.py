"""The page's addresses: plain on loopback, TLS wherever else it listens, with certificates or without."""

import asyncio
import datetime as dt
import socket
import ssl
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509

from mooring.clients.mooring import NoAnswerError, get, trusting
from mooring.core.model.exits import UserError
from mooring.process.serve import AddressTakenError, open_page
from mooring.process.settings.config import Config, ConfigError, host_ports, resolve
from mooring_lab.control.loopback import free_ports
from tests.security.test_webhook import Issuer


@asynccontextmanager
async def opened(listen_http, **more):
    async def secret(_):
        return web.Response(text="data")

    app = web.Application()
    app.router.add_get("/", secret)
    async with AsyncExitStack() as stack:
        await open_page(stack, app, Config(listen_http=listen_http, namespace="ops", **more))
        yield


async def asked(url, client=None):
    """What is answered; "" when there is no answer."""
    base, unverified = trusting(url)
    try:
        async with aiohttp.ClientSession() as session, session.get(base, ssl=client or unverified or True) as answer:
            return await answer.text()
    except (aiohttp.ClientError, OSError):
        return ""


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
async def test_off_loopback_there_is_only_tls(host):
    """Issue 21, line 10: whatever address is not loopback is served with TLS, also without http-certificates."""
    if host == "::" and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    (port,) = free_ports(1)
    where = f"[::1]:{port}" if host == "::" else f"127.0.0.1:{port}"
    async with opened(f"{host}:{port}"):
        assert await asked(f"https+unverified://{where}/") == "data"
        assert await asked(f"http://{where}/") == ""
        assert await asked(f"https://{where}/") == "", "nobody vouches for it"


async def test_loopback_is_plain_beside_it():
    """Both at once: who forwards a port meets loopback, without a certificate; others meet TLS."""
    plain, tls = free_ports(2)
    async with opened(f"127.0.0.1:{plain}, 0.0.0.0:{tls}"):
        assert await asked(f"http://127.0.0.1:{plain}/") == "data"
        assert await asked(f"https+unverified://127.0.0.1:{tls}/") == "data"
        assert await asked(f"http://127.0.0.1:{tls}/") == ""
        assert await asked(f"https+unverified://127.0.0.1:{plain}/") == ""


async def test_given_certificates_are_served_off_loopback(tmp_path):
    """http-certificates: who knows the authority can check them; on loopback nothing changes."""
    issuer = Issuer()
    served = issuer.leaf("localhost")
    for name, data in (("tls.crt", served.certificate), ("tls.key", served.key)):
        (tmp_path / name).write_bytes(data)
    plain, tls = free_ports(2)
    async with opened(f"127.0.0.1:{plain},:{tls}", http_certificates=str(tmp_path)):
        knows = ssl.create_default_context(cadata=served.bundle.decode())
        assert await asked(f"https://localhost:{tls}/", knows) == "data"
        assert await asked(f"http://127.0.0.1:{plain}/") == "data"
    (tmp_path / "tls.key").unlink()
    with pytest.raises(AddressTakenError, match="http-certificates"):
        async with opened(f":{tls}", http_certificates=str(tmp_path)):
            pass


async def test_the_certificate_of_its_own_names_the_replica():
    """Valid a year, for the host, the Service and the address of the pod; whoever trusts it, verifies it."""
    (port,) = free_ports(1)
    async with opened(f":{port}", advertise_address="127.0.0.1"):
        pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
        knows = ssl.create_default_context(cadata=pem)
        assert await asked(f"https://127.0.0.1:{port}/", knows) == "data"
    certificate = x509.load_pem_x509_certificate(pem.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {socket.gethostname(), "mooring.ops.svc"} <= set(names.get_values_for_type(x509.DNSName))
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    left = certificate.not_valid_after_utc - dt.datetime.now(dt.UTC)
    assert dt.timedelta(days=364) < left <= dt.timedelta(days=365)


async def test_commands_say_how_to_go_on_with_a_certificate_that_nobody_vouches_for():
    """`--server https://…`: the two ways are named; `https+unverified://…` is the explicit one."""
    (port,) = free_ports(1)

    def read(base):
        return get(base, "/", "", 10.0, lambda answer: answer.read().decode())

    async with opened(f":{port}"):
        with pytest.raises(NoAnswerError, match=r"self-signed.*SSL_CERT_FILE.*https\+unverified"):
            await asyncio.to_thread(read, f"https://127.0.0.1:{port}")
        assert await asyncio.to_thread(read, f"https+unverified://127.0.0.1:{port}") == "data"
    with pytest.raises(UserError, match="https"):
        read("ftp://127.0.0.1")


def test_addresses_are_read():
    """One or several, of either family, also as a pod's address is put together with a port."""
    assert host_ports("127.0.0.1:8390,10.0.0.7:8390", "x") == [("127.0.0.1", 8390), ("10.0.0.7", 8390)]
    assert host_ports("[::1]:80, fd00::7:8390", "x") == [("::1", 80), ("fd00::7", 8390)]
    with pytest.raises(ConfigError, match="HOST:PORT"):
        resolve({"listen-http": "127.0.0.1:8390,"}, {}, "", ())
