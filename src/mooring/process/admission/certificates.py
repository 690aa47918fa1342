"""The webhook's certificates: issued and rotated by Mooring, so that the API server trusts the one in use at any time.

An authority and one leaf of it lie in a Secret of our namespace. The leaf serves the webhook, and is also the client
certificate with which one replica forwards a request to another. The API server trusts the authorities in the webhook
configuration's caBundle, so a new authority has to be known before anything is signed by it:

    steady ──authority is old──► two authorities, old leaf ──settled──► two authorities, new leaf ──settled──► steady
      │ ▲                               ▲
      └─┘ leaf is old, or a name        └── the Secret is gone or damaged: what still serves is trusted on
          is missing: a new leaf

`advance` is that picture: a pure function from what is there to what should be there next. Old means two thirds of its
life; settled means that every API server and replica has had time to see the step before.
"""

import datetime as dt
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from mooring.clients.x509 import issue_authority, issue_leaf, new_key, pem, private_pem
from mooring.clients.x509 import name as subject_name

#: The name by which replicas know each other, whatever address they have.
PEER_NAME: Final = "mooring-webhook"
AUTHORITY_DAYS: Final = 365
LEAF_DAYS: Final = 90
#: API servers follow webhook configurations within seconds, replicas look every thirty.
SETTLED_S: Final = 120.0


class CertificateError(ValueError):
    """Certificates that cannot be used as they are; the message says which and why."""


class Material(msgspec.Struct, frozen=True):
    """What the Secret holds, all PEM. `since`: when the last step was taken."""

    authorities: tuple[bytes, ...]
    certificate: bytes
    key: bytes
    #: Of the newest authority. Empty when the certificates are given as files.
    authority_key: bytes = b""
    since: float = 0.0

    @property
    def bundle(self) -> bytes:
        return b"".join(self.authorities)


def advance(material: Material | None, names: Iterable[str], now: float, serving: Material | None = None) -> Material:
    """The next state; the same object when there is nothing to do. What is gone or cannot be used is recreated.

    `serving`: the certificates that replicas use right now. With them, a recreated authority is a rotation like any
    other: a person who deletes the Secret changes the authority, and no call fails.
    """
    wanted = tuple(dict.fromkeys((PEER_NAME, *names)))
    now = float(int(now))
    if material is None:
        return _new_material(serving, wanted, now)
    try:
        authorities = [x509.load_pem_x509_certificate(pem) for pem in material.authorities]
        leaf = x509.load_pem_x509_certificate(material.certificate)
        _check_pair(material)
    except ValueError:
        return _new_material(serving, wanted, now)
    at = dt.datetime.fromtimestamp(now, dt.UTC)
    if not authorities or authorities[0].not_valid_after_utc <= at or not _issued_by_any(leaf, authorities):
        return _new_material(serving, wanted, now)
    newest, settled = authorities[0], now - material.since >= SETTLED_S
    # First a leaf that can be used: after a long downtime it may have expired, and a rotation takes minutes.
    if _issued_by(leaf, newest) and (_old(leaf, at) or not set(wanted) <= _names_of(leaf)):
        return _with_leaf(material, wanted, now)
    if len(authorities) == 1:
        if _old(newest, at):
            return _beside(material, now)
    elif not _issued_by(leaf, newest):
        return _with_leaf(material, wanted, now) if settled else material
    elif settled:
        return msgspec.structs.replace(material, authorities=material.authorities[:1], since=now)
    return material


def peer_name(certificate: bytes) -> str:
    """The name by which replicas with this certificate know each other: ours, or where it was issued by another
    authority (cert-manager), the first of its own names, which no other leaf of that issuer has."""
    names = _names_of(x509.load_pem_x509_certificate(certificate))
    dns = [name for name in names if "*" not in name and ":" not in name and any(map(str.isalpha, name))]
    return PEER_NAME if PEER_NAME in names else min(dns, default=PEER_NAME)


@lru_cache(maxsize=8)
def split_bundle(bundle: bytes) -> tuple[bytes, ...]:
    """One PEM per certificate, in order."""
    try:
        found = x509.load_pem_x509_certificates(bundle) if bundle.strip() else []
    except ValueError as error:
        raise CertificateError(f"ca.crt holds no certificates in PEM: {error}") from None
    return tuple(pem(certificate) for certificate in found)


# ── Making ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _new_material(serving: Material | None, names: tuple[str, ...], now: float) -> Material:
    if serving is not None and all(_ends(one) > now for one in (serving.certificate, *serving.authorities)):
        return _beside(serving, now)
    return _fresh(names, now)


def _beside(material: Material, now: float) -> Material:
    """A new authority, trusted beside those before it; nothing is signed by it yet."""
    authority, key = _authority(now)
    return msgspec.structs.replace(
        material, authorities=(authority, *material.authorities), authority_key=key, since=now
    )


def _fresh(names: tuple[str, ...], now: float) -> Material:
    authority, authority_key = _authority(now)
    return _with_leaf(Material((authority,), b"", b"", authority_key, now), names, now)


def _authority(now: float) -> tuple[bytes, bytes]:
    key = new_key()
    # A name of its own each: two authorities of one name confuse verifiers while both are trusted.
    subject = subject_name(f"mooring webhook authority {int(now)}")
    certificate = issue_authority(
        subject, key, dt.datetime.fromtimestamp(now, dt.UTC), dt.timedelta(days=AUTHORITY_DAYS)
    )
    return pem(certificate), private_pem(key)


def _with_leaf(material: Material, names: tuple[str, ...], now: float) -> Material:
    authority = x509.load_pem_x509_certificate(material.authorities[0])
    authority_key = serialization.load_pem_private_key(material.authority_key, None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    key = new_key()
    leaf = issue_leaf(
        subject_name(PEER_NAME),
        key,
        authority,
        authority_key,
        dt.datetime.fromtimestamp(now, dt.UTC),
        dt.timedelta(days=LEAF_DAYS),
        usages=[ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
        hosts=names,
    )
    return msgspec.structs.replace(material, certificate=pem(leaf), key=private_pem(key), since=now)


# ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _ends(certificate: bytes) -> float:
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()


def _old(certificate: x509.Certificate, at: dt.datetime) -> bool:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return at >= certificate.not_valid_before_utc + life * 2 / 3


def _issued_by(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _issued_by_any(leaf: x509.Certificate, authorities: Iterable[x509.Certificate]) -> bool:
    return any(_issued_by(leaf, authority) for authority in authorities)


def _names_of(leaf: x509.Certificate) -> set[str]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}


def _check_pair(material: Material) -> None:
    """The key belongs to the certificate, and the authority's to the newest authority. ValueError if not."""
    pairs = ((material.certificate, material.key), (material.authorities[0], material.authority_key))
    for certificate_pem, key_pem in pairs:
        key = serialization.load_pem_private_key(key_pem, None)
        if key.public_key() != x509.load_pem_x509_certificate(certificate_pem).public_key():
            raise CertificateError("a key does not belong to its certificate")
