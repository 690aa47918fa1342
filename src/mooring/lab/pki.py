"""Certificates for a control plane that lives for an afternoon: one authority, ECDSA keys, loopback names only.

Kubernetes reads who somebody is from a client certificate: the common name is the user, the organisations are groups.
"""

import base64
import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: A lab is short-lived, but a laptop may sleep over a long weekend.
VALID_FOR: Final = dt.timedelta(days=30)
#: A clock that is a little behind must not find the certificates too young.
_BACKDATED: Final = dt.timedelta(hours=1)
_LOOPBACK: Final = ("127.0.0.1", "::1")


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """`<name>.crt` and `<name>.key`; the key is readable by its owner alone."""
        directory.mkdir(parents=True, exist_ok=True)
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        certificate.write_bytes(self.certificate)
        write_private(key, self.key)
        return certificate, key


class Authority:
    """The lab's own certificate authority."""

    def __init__(self, name: str = "mooring lab") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name, ())
        self._certificate = (
            _certificate(subject, subject, self._key.public_key(), signed_by=self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(authority=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pair(self) -> KeyPair:
        return _pem(self._certificate, self._key)

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """A certificate by which the API server knows this user."""
        return self._issue(_name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def server(self, name: str, hosts: Sequence[str] = ()) -> KeyPair:
        """A certificate for something that listens on loopback, also under these host names and addresses."""
        return self._issue(_name(name, ()), ExtendedKeyUsageOID.SERVER_AUTH, ("localhost", *_LOOPBACK, *hosts))

    def _issue(self, subject: x509.Name, usage: x509.ObjectIdentifier, hosts: Sequence[str]) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _certificate(subject, self._certificate.subject, key.public_key(), signed_by=self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(h) for h in hosts]), critical=False)
        return _pem(builder.sign(self._key, hashes.SHA256()), key)


def signing_keys() -> tuple[bytes, bytes]:
    """A private and a public key in PEM, by which service account tokens are signed and checked."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _private_pem(key), public


def kubeconfig(server: str, authority: bytes, client: KeyPair, name: str = "mooring-lab") -> bytes:
    """A kubeconfig that holds everything itself, so that the one file can be handed around."""
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": _base64(authority)}}],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": _base64(client.certificate),
                    "client-key-data": _base64(client.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False).encode()


def write_private(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(data)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, signed_by: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + VALID_FOR)
        # Both key identifiers: strict verifiers (Python's own from 3.13 on) insist on them.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signed_by), critical=False)
    )


def _name(user: str, groups: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, authority: bool) -> x509.KeyUsage:
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


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(certificate=certificate.public_bytes(serialization.Encoding.PEM), key=_private_pem(key))


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
