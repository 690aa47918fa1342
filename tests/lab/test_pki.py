"""Certificates that a strict TLS stack accepts, and that say who somebody is."""

import datetime as dt
import ssl
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mooring_lab.control import pki


def load(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def handshake(authority: pki.Authority, server: pki.KeyPair, client: pki.KeyPair, host: str, tmp_path: Path) -> dict:
    """A mutual TLS handshake in memory; returns the client's certificate as the server saw it."""
    ca, _ = authority.pair.write(tmp_path, "ca")
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(*server.write(tmp_path, "server"))
    of_server.verify_mode = ssl.CERT_REQUIRED
    of_server.load_verify_locations(ca)
    of_client = ssl.create_default_context(cafile=str(ca))
    of_client.verify_flags |= ssl.VERIFY_X509_STRICT
    of_client.load_cert_chain(*client.write(tmp_path, "client"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    a = of_client.wrap_bio(to_client, to_server, server_hostname=host)
    b = of_server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(5):
        for side in (a, b):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return b.getpeercert() or {}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "kubernetes.default.svc"])
def test_both_sides_accept_each_other(host: str, tmp_path: Path):
    """Server and client certificates of one authority pass a strict mutual handshake on every name of loopback."""
    authority = pki.Authority()
    server = authority.server("kube-apiserver", ["kubernetes.default.svc"])
    seen = handshake(authority, server, authority.client("system:kube-scheduler"), host, tmp_path)
    assert seen["subject"] == ((("commonName", "system:kube-scheduler"),),)


def test_another_authority_is_refused(tmp_path: Path):
    """A client whose certificate another lab signed does not get in."""
    authority = pki.Authority()
    with pytest.raises(ssl.SSLError):
        handshake(authority, authority.server("x"), pki.Authority().client("x"), "127.0.0.1", tmp_path)


def test_client_carries_user_and_groups():
    """The common name is the user and the organisations are the groups, which is what RBAC reads."""
    subject = load(pki.Authority().client("me", ["system:masters", "people"]).certificate).subject
    assert [n.value for n in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["me"]
    assert {n.value for n in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)} == {"system:masters", "people"}


def test_usage_is_as_narrow_as_the_part():
    """A client's certificate cannot serve, a server's cannot log in, and neither can sign others."""
    authority = pki.Authority()
    for pair, usage in (
        (authority.client("c"), ExtendedKeyUsageOID.CLIENT_AUTH),
        (authority.server("s"), ExtendedKeyUsageOID.SERVER_AUTH),
    ):
        extensions = load(pair.certificate).extensions
        assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [usage]
        assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_valid_now_and_for_a_while():
    """Certificates hold from a little before now until weeks from now."""
    certificate = load(pki.Authority().pair.certificate)
    now = dt.datetime.now(dt.UTC)
    assert certificate.not_valid_before_utc < now - dt.timedelta(minutes=5)
    assert certificate.not_valid_after_utc > now + dt.timedelta(days=7)


def test_keys_are_for_their_owner_alone(tmp_path: Path):
    """Nobody else on the machine can read a private key."""
    _, key = pki.Authority().client("me").write(tmp_path, "me")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_kubeconfig_needs_no_other_file():
    """The kubeconfig names the server and holds authority, certificate and key itself."""
    authority = pki.Authority()
    config = yaml.safe_load(pki.kubeconfig("https://127.0.0.1:1", authority.pair.certificate, authority.client("me")))
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert set(config["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}
    assert config["current-context"] == config["contexts"][0]["name"]
