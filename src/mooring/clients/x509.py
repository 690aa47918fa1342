"""Making X.509 certificates: one way for the webhook's, the lab's and the sandbox's.

ECDSA keys throughout: handshakes are ten times cheaper than with RSA. Both key identifiers are always there: strict
verifiers (Python's own from 3.13 on) insist on them.
"""

import datetime as dt
import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: A clock that is a little behind must not find a certificate too young.
BACKDATED: Final = dt.timedelta(hours=1)


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def name(common: str, organisations: Sequence[str] = ()) -> x509.Name:
    """Kubernetes reads a user and its groups from these."""
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organisations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def issue_authority(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, now: dt.datetime, valid_for: dt.timedelta
) -> x509.Certificate:
    """A self-signed authority that signs leaves and nothing below them."""
    return (
        _begin(subject, subject, key.public_key(), key.public_key(), now, valid_for)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def issue_leaf(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    valid_for: dt.timedelta,
    *,
    usages: Sequence[x509.ObjectIdentifier],
    hosts: Sequence[str] = (),
) -> x509.Certificate:
    builder = (
        _begin(subject, authority.subject, key.public_key(), authority_key.public_key(), now, valid_for)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def load_pair(certificate: bytes, key: bytes, *contexts: ssl.SSLContext) -> None:
    """OpenSSL loads a key from a file: one that only we can read, and that is gone afterwards. Raises SSLError."""
    with tempfile.TemporaryDirectory(prefix="mooring-tls-") as directory:
        files = Path(directory) / "tls.crt", Path(directory) / "tls.key"
        files[0].write_bytes(certificate)
        files[1].touch(mode=0o600)
        files[1].write_bytes(key)
        for context in contexts:
            context.load_cert_chain(*files)


def _begin(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signed_by: ec.EllipticCurvePublicKey,
    now: dt.datetime,
    valid_for: dt.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + valid_for)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signed_by), critical=False)
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
