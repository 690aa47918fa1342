"""TLS to one TidbCluster's PD, with the certificate in its client Secret (E10).

The Secret (`tls.crt`, `tls.key`, `ca.crt`) is read by name, never listed nor watched, so the right to read it can name
it. It is read again every minute, and at once after a handshake has failed: a rotation needs no restart. Connections
that stand go on with what they began with. While the API server does not answer, what was read last is used; a Secret
that is gone or cannot be used is an error that says what to do, since a PD that asks for certificates answers nobody
without one.
"""

import base64
import binascii
import ssl
from typing import Final

from mooring.clients.ports import Clock, Json, KubeApi, NotFoundError, PortError, RefusedError, TlsError
from mooring.clients.x509 import load_pair
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import Kind

REREAD_S: Final = 60.0
#: A handshake that goes on failing reads it no more often.
RETRY_S: Final = 5.0


class ClientSecret:
    def __init__(self, api: KubeApi, secret: Key, clock: Clock, *, optional: bool = False) -> None:
        """`optional`: without such a Secret the system's authorities are trusted, and no certificate is shown."""
        self._api, self._secret, self._clock, self._optional = api, secret, clock, optional
        self._version = ""
        self._context: ssl.SSLContext | None = None
        self._due = 0.0
        #: PD has answered with what the Secret holds now.
        self.accepted = False

    def __str__(self) -> str:
        return f"Secret {self._secret}"

    async def context(self) -> ssl.SSLContext:
        """For the next connection: the same one for as long as the Secret is. TlsError: there is none to be had."""
        if self._context is not None and self._clock.now() < self._due:
            return self._context
        try:
            found = await self._api.get(Kind.SECRET, self._secret.namespace, self._secret.name)
        except NotFoundError:
            if not self._optional:
                raise TlsError(f"{self} with the client certificate for PD is not there", self._make()) from None
            found = {}
        except RefusedError as error:
            raise TlsError(f"{self}: {error}", self._allow()) from None
        except PortError as error:
            if self._context is None:
                raise TlsError(f"{self} cannot be read: {error}", self._allow()) from None
            return self._context
        version = (found.get("metadata") or {}).get("resourceVersion", "none")
        if self._context is None or version != self._version:
            self._context, self._version = self._built(found.get("data") or {}), version
            self.accepted = False
        self._due = self._clock.now() + REREAD_S
        return self._context

    def refused(self, why: str) -> TlsError:
        """A handshake has failed: the Secret is read again before the next one."""
        self._due = min(self._due, self._clock.now() + RETRY_S)
        return TlsError(f"{why}, with the certificate of {self}", self._fit())

    def _built(self, data: Json) -> ssl.SSLContext:
        try:
            ca, certificate, key = (base64.b64decode(data.get(k) or "") for k in ("ca.crt", "tls.crt", "tls.key"))
            context = ssl.create_default_context(cadata=ca.decode() or None)
            if certificate or not self._optional:
                load_pair(certificate, key, context)
        except (ssl.SSLError, ValueError, TypeError, binascii.Error) as error:
            raise TlsError(
                f"{self} cannot be used: ca.crt, tls.crt and tls.key must be PEM, and the last two a pair ({error})",
                self._make(),
            ) from None
        # Authorities are often made by hand and lack key identifiers; Go accepts them, as Python did until 3.13.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def _allow(self) -> str:
        return (
            f"mooring manifests --features NAME=true,… --pd-client-secrets {self._secret} --rights | kubectl apply -f -"
        )

    def _make(self) -> str:
        at = f"kubectl -n {self._secret.namespace} get secret {self._secret.name}"
        return f"{at}; another name: pd-client-secrets in the settings"

    def _fit(self) -> str:
        return f"renew Secret {self._secret}: ca.crt must have signed PD's certificate, and PD must accept tls.crt"
