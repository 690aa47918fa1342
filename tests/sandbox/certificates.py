"""Certificates for a facade on loopback."""

import datetime as dt
from pathlib import Path

from cryptography.x509.oid import ExtendedKeyUsageOID

from mooring.clients.x509 import issue_authority, issue_leaf, name, new_key, pem, private_pem
from mooring_lab.cluster.http.tls import Certificates


def make_certificates(directory: Path) -> Certificates:
    """For 127.0.0.1, ::1 and localhost."""
    # Validity is read by TLS stacks, which know the machine's clock and not the sandbox's.
    now, life = dt.datetime.now(dt.UTC), dt.timedelta(days=7)
    authority_key, key = new_key(), new_key()
    authority = issue_authority(name("mooring-sandbox-ca"), authority_key, now, life)
    server = issue_leaf(
        name("mooring-sandbox"),
        key,
        authority,
        authority_key,
        now,
        life,
        usages=[ExtendedKeyUsageOID.SERVER_AUTH],
        hosts=("localhost", "127.0.0.1", "::1"),
    )
    directory.mkdir(parents=True, exist_ok=True)
    cert_file, key_file = directory / "apiserver.crt", directory / "apiserver.key"
    cert_file.write_bytes(pem(server))
    key_file.touch(mode=0o600)
    key_file.write_bytes(private_pem(key))
    return Certificates(pem(authority), cert_file, key_file)
