"""TLS on loopback: calling a webhook as the API server does, and certificates for the facade.

Calling trusts the caBundle alone. On virtual time there are no sockets: a call fails as if nobody listened, unless
the URL is served in process (`Admission.serve`).
"""

import asyncio
import base64
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mooring.ports import Json
from mooring.sandbox.clock import VirtualLoop


async def call_over_tls(url: str, ca_bundle: str, review: Json, timeout_s: float) -> Json:
    """POST as kube-apiserver does. Raises OSError, TimeoutError or ValueError when there is no usable answer."""
    if isinstance(asyncio.get_running_loop(), VirtualLoop):
        raise ConnectionRefusedError("nobody serves this URL in the sandbox")
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


def make_certificates(directory: Path, days: int = 7) -> Certificates:
    """For 127.0.0.1, ::1 and localhost. ECDSA: handshakes are ten times cheaper than with RSA."""
    # Validity is read by TLS stacks, which know the machine's clock and not the sandbox's.
    now = datetime.now(UTC)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mooring-sandbox-ca")])

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=days))
        )

    ca = builder(ca_name, ca_key.public_key()).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
    ca_cert = ca.sign(ca_key, hashes.SHA256())
    names = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ]
    server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mooring-sandbox")])
    server = (
        builder(server_name, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), False)
        .sign(ca_key, hashes.SHA256())
    )
    directory.mkdir(parents=True, exist_ok=True)
    cert_file, key_file = directory / "apiserver.crt", directory / "apiserver.key"
    cert_file.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    key_file.touch(mode=0o600)
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return Certificates(ca_cert.public_bytes(serialization.Encoding.PEM), cert_file, key_file)
