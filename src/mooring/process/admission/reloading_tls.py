"""One listening socket whose certificate can be changed while it serves.

Loading new files into the context in use is a trap: half-written files raise an error *and* leave the context broken,
so that every later handshake fails. So each set of certificates gets a context of its own, checked by building it; only
then do new handshakes use it. Connections that stand go on with what they began with.
"""

import ssl
from collections.abc import Mapping
from typing import Any

from mooring.clients.x509 import load_pair
from mooring.process.admission.certificates import CertificateError, Material, peer_name


class ReloadingTls:
    """The context to listen with. Before the first `swap` every handshake fails, in an orderly way."""

    def __init__(self, callers: bytes = b"") -> None:
        """`callers`: authorities, in PEM, of the clients besides replicas (the API servers)."""
        self._callers = callers
        self._issuers = _subjects(callers)
        self.context = _server()
        self.context.sni_callback = self._choose
        self._current: ssl.SSLContext | None = None
        self._client: ssl.SSLContext | None = None
        self.material: Material | None = None
        #: The name that a replica has, as caller and as called.
        self.peer_name = ""

    @property
    def only_known(self) -> bool:
        """A client that requests an admission must present a certificate."""
        return bool(self._callers)

    def knows(self, certificate: Mapping[str, Any]) -> bool:
        """May a client with this certificate request an admission? The handshake also accepts certificates of the
        issuer of our own certificate, which any client in the cluster may have."""
        return not self.only_known or certificate.get("issuer") in self._issuers

    @property
    def loaded(self) -> bool:
        return self._current is not None

    @property
    def client(self) -> ssl.SSLContext | None:
        """The context for calls to another replica: our certificate, and the authorities that we trust."""
        return self._client

    def swap(self, material: Material) -> None:
        """Use these from the next handshake on. CertificateError: nothing has changed."""
        server, client = _server(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            load_pair(material.certificate, material.key, server, client)
            if material.authorities:
                for context in (server, client):
                    context.load_verify_locations(cadata=material.bundle.decode())
            if self._callers:
                server.load_verify_locations(cadata=self._callers.decode())
        except (ssl.SSLError, ValueError) as error:
            raise CertificateError(f"certificate and key cannot be used together: {error}") from None
        self._current, self._client, self.material = server, client, material
        self.peer_name = peer_name(material.certificate)

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _: ssl.SSLContext) -> int | None:
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None


def _subjects(authorities: bytes) -> frozenset[Any]:
    """The names of these authorities, as `getpeercert` writes an issuer."""
    context = _server()
    try:
        if authorities:
            context.load_verify_locations(cadata=authorities.decode())
    except (ssl.SSLError, ValueError):
        pass  # `swap` says so
    return frozenset(found["subject"] for found in context.get_ca_certs())


def _server() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The API server shows no certificate, another replica does: asked for, checked if shown, never demanded here.
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
