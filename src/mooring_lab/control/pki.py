"""Certificates for a short-lived control plane: one authority, ECDSA keys, loopback names only.

Kubernetes reads the user from a client certificate: the common name is the user, the organisations are groups.
"""

import base64
import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from mooring.clients.x509 import issue_authority, issue_leaf, new_key, pem, private_pem
from mooring.clients.x509 import name as subject_name

#: A lab is short-lived, but a laptop may sleep over a long weekend.
VALID_FOR: Final = dt.timedelta(days=30)
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

    def __init__(self) -> None:
        self._key = new_key()
        self._certificate = issue_authority(subject_name("mooring lab"), self._key, dt.datetime.now(dt.UTC), VALID_FOR)

    @property
    def pair(self) -> KeyPair:
        return _pair(self._certificate, self._key)

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """A certificate by which the API server knows this user."""
        return self._issue(subject_name(user, groups), (), ExtendedKeyUsageOID.CLIENT_AUTH)

    def server(self, name: str, hosts: Sequence[str] = (), *, member: bool = False) -> KeyPair:
        """A certificate for something that listens on loopback, also under these host names and addresses. `member`:
        it shows the same one to other servers, as PD does."""
        more = (ExtendedKeyUsageOID.CLIENT_AUTH,) if member else ()
        at = ("localhost", *_LOOPBACK, *hosts)
        return self._issue(subject_name(name), at, ExtendedKeyUsageOID.SERVER_AUTH, *more)

    def _issue(self, subject: x509.Name, hosts: Sequence[str], *usages: x509.ObjectIdentifier) -> KeyPair:
        key = new_key()
        certificate = issue_leaf(
            subject,
            key,
            self._certificate,
            self._key,
            dt.datetime.now(dt.UTC),
            VALID_FOR,
            usages=usages,
            hosts=hosts,
        )
        return _pair(certificate, key)


def signing_keys() -> tuple[bytes, bytes]:
    """A private and a public key in PEM, by which service account tokens are signed and checked."""
    key = new_key()
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private_pem(key), public


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


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(certificate=pem(certificate), key=private_pem(key))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
