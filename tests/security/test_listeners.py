"""Who gets through the TLS handshake of the extender and of the page."""

import ssl

import aiohttp
import pytest
from aiohttp import web

from mooring.process.serve import AddressTakenError, server_tls
from tests.security.test_webhook import Issuer, shown


async def _status(context: ssl.SSLContext, client: ssl.SSLContext) -> int:
    app = web.Application()
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{runner.addresses[0][1]}/"
            async with session.get(url, ssl=client) as answer:
                return answer.status
    finally:
        await runner.cleanup()


async def test_only_schedulers_with_a_certificate_reach_the_extender(tmp_path):
    """extender-certificates: without a certificate of ca.crt there is no connection; the page asks for none."""
    issuer = Issuer()
    served = issuer.leaf("mooring.mooring-system.svc")
    for name, data in (("tls.crt", served.certificate), ("tls.key", served.key), ("ca.crt", served.bundle)):
        (tmp_path / name).write_bytes(data)
    closed = server_tls(str(tmp_path), "extender-certificates", only_known=True)
    open_ = server_tls(str(tmp_path), "http-certificates")
    assert await _status(closed, shown(issuer.leaf("kube-scheduler"))) == 404
    anonymous = ssl.create_default_context(cadata=served.bundle.decode())
    anonymous.check_hostname = False
    assert await _status(open_, anonymous) == 404
    for stranger in (anonymous, shown(Issuer().leaf("kube-scheduler"))):
        stranger.load_verify_locations(cadata=served.bundle.decode())
        with pytest.raises((aiohttp.ClientError, OSError)):
            await _status(closed, stranger)


@pytest.mark.parametrize("only_known", [False, True], ids=["page", "extender"])
async def test_renewed_certificates_count_without_a_restart(tmp_path, only_known):
    """http-certificates, extender-certificates: new files from the next handshake on; broken ones change nothing."""

    def put(issuer: Issuer) -> None:
        served = issuer.leaf("mooring.mooring-system.svc")
        for name, data in (("tls.crt", served.certificate), ("tls.key", served.key), ("ca.crt", served.bundle)):
            (tmp_path / name).write_bytes(data)

    first, second = Issuer(), Issuer()
    put(first)
    context = server_tls(str(tmp_path), "certificates", only_known=only_known)
    assert await _status(context, shown(first.leaf("kube-scheduler"))) == 404
    put(second)
    assert await _status(context, shown(second.leaf("kube-scheduler"))) == 404
    with pytest.raises((aiohttp.ClientError, OSError)):
        await _status(context, shown(first.leaf("kube-scheduler")))
    for broken in (b"-----BEGIN CERTIFICATE-----\nhalf", None):
        (tmp_path / "tls.crt").unlink() if broken is None else (tmp_path / "tls.crt").write_bytes(broken)
        assert await _status(context, shown(second.leaf("kube-scheduler"))) == 404
    put(first)
    assert await _status(context, shown(first.leaf("kube-scheduler"))) == 404


def test_a_directory_without_certificates_is_said_at_the_start(tmp_path):
    """The message names the setting and what is wanted there."""
    with pytest.raises(AddressTakenError, match=r"extender-certificates.*ca\.crt"):
        server_tls(str(tmp_path), "extender-certificates", only_known=True)
    assert server_tls("", "http-certificates") is None
