"""TLS on loopback: calling a webhook as the API server does, and certificates for the facade.

Calling trusts the caBundle alone. On virtual time there are no sockets: a call fails like a refused connection, unless
the URL is served in process (`Admission.serve`).
"""

import asyncio
import base64
import ssl
from pathlib import Path

import aiohttp
import msgspec

from mooring.clients.ports import Json
from mooring_lab.cluster.clock import VirtualLoop


async def call_over_tls(url: str, ca_bundle: str, review: Json, timeout_s: float) -> Json:
    """POST as kube-apiserver does. Raises OSError, TimeoutError or ValueError when there is no usable answer."""
    if isinstance(asyncio.get_running_loop(), VirtualLoop):
        raise ConnectionRefusedError("no server at this URL in the sandbox")
    context = ssl.create_default_context(cadata=base64.b64decode(ca_bundle).decode() if ca_bundle else None)
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.post(
                f"{url}?timeout={timeout_s:g}s",
                data=msgspec.json.encode(review),
                headers={"Content-Type": "application/json", "User-Agent": "kube-apiserver-admission"},
                ssl=context,
            ) as answer,
        ):
            body = await answer.read()
            if answer.status != 200:
                raise ValueError(f"the server answered {answer.status}")
    except aiohttp.ClientError as error:
        raise OSError(str(error)) from error
    decoded = msgspec.json.decode(body)
    if not isinstance(decoded, dict):
        raise ValueError("the answer is not an AdmissionReview")  # noqa: TRY004
    return decoded


class Certificates(msgspec.Struct, frozen=True):
    """PEM files of a throw-away authority and one server certificate of it."""

    ca_pem: bytes
    cert_file: Path
    key_file: Path

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert_file, self.key_file)
        return context
