"""Certificates and TLS of the webhook, over real sockets on loopback."""

import asyncio
import base64
import itertools
import ssl

import aiohttp
import msgspec
import pytest
from cryptography import x509

from mooring.process.admission.certificates import (
    LEAF_DAYS,
    SETTLED_S,
    CertificateError,
    Material,
    advance,
    split_bundle,
)
from mooring.process.admission.reloading_tls import ReloadingTls

DAY = 86_400.0
NAMES = ["127.0.0.1"]


async def test_rotation_never_leaves_the_api_server_without_trust():
    """Through a whole rotation, whoever trusts the bundle of any step trusts the leaf of that step and of the next:
    API servers that are a step behind still get through."""
    now = 1_800_000_000.0
    material = advance(None, NAMES, now)
    assert advance(material, NAMES, now + DAY) is material
    steps = [material]
    for _ in range(200):
        now += DAY
        for _ in range(4):
            following = advance(steps[-1], NAMES, now)
            if following is not steps[-1]:
                steps.append(following)
            now += SETTLED_S
    sizes = [len(m.authorities) for m in steps]
    assert 2 in sizes or max(sizes) == 1
    # 200 days: leaves are renewed, the authority not yet; go on until it is.
    while not any(len(m.authorities) == 2 for m in steps) or len(steps[-1].authorities) == 2:
        now += SETTLED_S if len(steps[-1].authorities) == 2 else DAY
        following = advance(steps[-1], NAMES, now)
        if following is not steps[-1]:
            steps.append(following)
        assert now < 1_800_000_000.0 + 2 * 365 * DAY
    assert steps[-1].authorities[0] not in steps[0].authorities
    for before, after in itertools.pairwise(steps):
        await _handshake(trust=before, serve=before)
        await _handshake(trust=before, serve=after)
        await _handshake(trust=after, serve=before)


async def _handshake(trust: Material, serve: Material) -> None:
    front = ReloadingTls()
    front.swap(serve)
    client = ssl.create_default_context(cadata=trust.bundle.decode())
    # The certificates are of another year: what is asked here is who vouches for whom.
    client.verify_flags |= 0x200000  # X509_V_FLAG_NO_CHECK_TIME
    server = await asyncio.start_server(lambda _, w: w.close(), "127.0.0.1", 0, ssl=front.context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        writer.close()
        await writer.wait_closed()


def test_a_leaf_is_renewed_in_time_and_for_new_names():
    """A leaf is replaced at two thirds of its life, or as soon as it lacks a name; the authority stays."""
    now = 1_800_000_000.0
    material = advance(None, NAMES, now)
    later = advance(material, NAMES, now + LEAF_DAYS * DAY * 0.7)
    assert later.authorities == material.authorities
    leaves = [x509.load_pem_x509_certificate(one.certificate) for one in (material, later)]
    assert leaves[1].not_valid_after_utc > leaves[0].not_valid_after_utc
    named = advance(material, [*NAMES, "mooring-webhook.other.svc"], now + 5)
    assert named.certificate != material.certificate
    assert advance(named, NAMES, now + 6) is named, "a name too many is no reason"


@pytest.mark.parametrize("damage", ["certificate", "key", "authority_key", "authorities"])
def test_damaged_material_is_made_anew(damage):
    """What somebody broke in the Secret is replaced by something that works."""
    material = advance(None, NAMES, 1_800_000_000.0)
    other = advance(None, NAMES, 1_800_000_000.0)
    swapped = msgspec.structs.replace(material, **{damage: getattr(other, damage)})
    garbage = msgspec.structs.replace(material, **{damage: (b"x",) if damage == "authorities" else b"x"})
    for broken in (swapped, garbage):
        mended = advance(broken, NAMES, 1_800_000_000.0)
        assert mended is not broken
        ReloadingTls().swap(mended)


def test_half_written_files_change_nothing():
    """A key that does not belong to the certificate is refused, and the old pair serves on."""
    one, two = advance(None, NAMES, 1_800_000_000.0), advance(None, NAMES, 1_800_000_000.0)
    front = ReloadingTls()
    front.swap(one)
    for bad in (msgspec.structs.replace(one, key=two.key), msgspec.structs.replace(one, certificate=b"-----BEGIN")):
        with pytest.raises(CertificateError):
            front.swap(bad)
    assert front.material is one


def test_bundles_are_split():
    """ca.crt may hold several authorities, or nothing; text that is no certificate is refused in words."""
    material = advance(None, NAMES, 1_800_000_000.0)
    assert split_bundle(material.bundle * 2) == material.authorities * 2
    assert split_bundle(b"\n") == ()
    with pytest.raises(CertificateError):
        split_bundle(b"not a certificate")


async def test_no_request_is_dropped_while_certificates_change():
    """Certificates are swapped many times under load: every request is answered, new connections see the new leaf."""
    import time

    from aiohttp import web

    front = ReloadingTls()
    materials = [advance(None, NAMES, time.time()) for _ in range(3)]
    front.swap(materials[0])
    trust = ssl.create_default_context(cadata=b"".join(m.bundle for m in materials).decode())

    async def hello(_: web.Request) -> web.Response:
        await asyncio.sleep(0.002)
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/", hello)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=front.context).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}/"
    seen = []
    answered = 0
    swapping = True

    async def ask(session: aiohttp.ClientSession, *, keep: bool) -> None:
        nonlocal answered
        headers = {} if keep else {"Connection": "close"}
        while swapping:
            async with session.get(url, headers=headers) as answer:
                assert await answer.text() == "ok"
                answered += 1

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        tasks = [asyncio.create_task(ask(session, keep=i % 2 == 0)) for i in range(6)]
        for i in range(30):
            front.swap(materials[i % 3])
            if i < 3:
                _, writer = await asyncio.open_connection("127.0.0.1", runner.addresses[0][1], ssl=trust)
                seen.append(writer.get_extra_info("peercert")["serialNumber"])
                writer.close()
            await asyncio.sleep(0.01)
        swapping = False
        await asyncio.gather(*tasks)
    await runner.cleanup()
    assert answered > 30
    assert len(set(seen)) == 3


def test_secret_round_trip():
    """What the keeper writes into the Secret it reads back as the same material."""
    from mooring.process.admission.webhook_reconciler import SINCE, _material

    material = advance(None, NAMES, 1_800_000_000.4)

    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode()

    secret = {
        "metadata": {"annotations": {SINCE: f"{material.since:.0f}"}},
        "data": {
            "ca.crt": encoded(material.bundle),
            "ca.key": encoded(material.authority_key),
            "tls.crt": encoded(material.certificate),
            "tls.key": encoded(material.key),
        },
    }
    assert _material(secret) == material
    assert _material({"data": {"ca.crt": "%"}}) is None
