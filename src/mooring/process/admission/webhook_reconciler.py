"""Keeps the webhook's certificates and configurations as they should be: looks every half minute, compares, swaps.

Every replica reads the Secret and uses what is in it; the leader also writes the next step of a rotation and installs
the webhook configurations with all authorities that count. Certificates given as files (cert-manager) are only read.
What cannot be used is reported and left alone: the old ones serve on.
"""

import base64
import binascii
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from mooring.clients.ports import AlreadyExistsError, Clock, ConflictError, Json, KubeApi, NotFoundError, PortError
from mooring.core.model.descriptor import TLS_SECRET
from mooring.core.model.kinds import Kind
from mooring.process.admission.certificates import CertificateError, Material, advance, split_bundle
from mooring.process.admission.configurations import (
    EVICTIONS,
    LABELS,
    PODS,
    RESPONDERS,
    WebhookAddress,
    configurations,
    install,
    stand,
    uninstall,
)
from mooring.process.admission.reloading_tls import ReloadingTls
from mooring.process.clock import TimedEvent

log = structlog.get_logger()

SINCE: Final = "mooring.dev/rotated-at"
EVERY_S: Final = 30.0
AT_FIRST_S: Final = 0.5
#: After a look that failed: a replica must not miss a whole step of a rotation over a few of them.
RETRY_S: Final = 5.0
#: Certificates at rest are checked this often: their steps take days.
AT_REST_S: Final = 3600.0


class WebhookReconciler:
    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        front: ReloadingTls,
        address: WebhookAddress,
        *,
        leads: Callable[[], bool],
        serves: frozenset[str] = frozenset({PODS, EVICTIONS}),
        directory: str = "",
        has_evictions: Callable[[], bool] = lambda: False,
    ) -> None:
        """`api` must refuse to write unless we lead. `serves`: what is on that is asked of us; nothing: the leader
        takes the hooks away. `has_evictions`: the API server has those of `lifecycle.k8s.io`."""
        self._api = api
        self._clock = clock
        self._front = front
        self._address = address
        self._leads = leads
        self._serves = serves
        self._has_evictions = has_evictions
        self._directory = Path(directory) if directory else None
        self._bad: Material | None = None
        #: The Secret's resourceVersion, and until when what it holds needs no checking.
        self._checked: tuple[str, float] | None = None
        self._installed = False
        self._namespace_uid = ""
        self._nudge = TimedEvent(clock)

    @property
    def missing(self) -> list[str]:
        """What is still missing before the webhook can be served."""
        return [] if self._front.loaded or not self._serves else ["webhook: no certificates yet"]

    def serve(self, serves: frozenset[str]) -> None:
        """A feature was switched on or off."""
        if serves != self._serves:
            self._serves = serves
            self._installed = False
            self.look_again()

    def look_again(self) -> None:
        """Something changed (we lead now): do not wait for the next round."""
        self._nudge.set()

    async def run(self) -> None:
        while True:
            failed = False
            try:
                await self.turn()
            except PortError as error:
                log.warning("webhook.reconcile-failed", error=str(error))
                failed = True
            pause: float | None = EVERY_S
            if not self._serves:
                pause = RETRY_S if failed else None  # until we lead (again)
            elif failed and self._front.loaded:
                pause = RETRY_S
            elif not self._front.loaded or (self._leads() and not self._installed):
                pause = AT_FIRST_S
            await self._nudge.wait(pause)
            self._nudge.clear()

    async def turn(self) -> None:
        """One look."""
        if not self._serves:
            if self._leads():
                for what in await uninstall(self._api):
                    log.info("webhook.removed", what=what)
            return
        if self._directory is not None:
            self._use(self._from_files())
            if self._leads() and self._front.material is not None:
                await self._install(self._front.material)
            return
        secret = await self._secret()
        material = _material(secret) if secret is not None else None
        self._use(material)
        if self._leads():
            await self._keep(secret, material)

    async def leave(self) -> None:
        """We led and stop. Outside a cluster nothing else serves the URL: no API server should wait for this
        process."""
        if self._serves and self._address.url and self._leads():
            with contextlib.suppress(PortError):
                await uninstall(self._api, self._address)

    def _use(self, material: Material | None) -> None:
        if material is None or material in (self._front.material, self._bad):
            return
        try:
            self._front.swap(material)
        except CertificateError as error:
            self._bad = material
            log.warning("webhook.certificates", error=str(error), serving="the ones before")
        else:
            log.info("webhook.certificates", loaded=True, authorities=len(material.authorities))

    async def _install(self, material: Material) -> None:
        for what in await install(self._api, await self._wanted(material)):
            log.info("webhook.installed", what=what)
        self._installed = True

    async def _wanted(self, material: Material) -> dict[Kind, Json]:
        if not self._namespace_uid:
            with contextlib.suppress(PortError):
                found = await self._api.get(Kind.NAMESPACE, "", self._address.namespace)
                self._namespace_uid = str(found["metadata"]["uid"])
        more = {RESPONDERS} if EVICTIONS in self._serves and self._has_evictions() else set()
        return configurations(self._address, material.bundle, self._namespace_uid, self._serves | more)

    # ── The Secret ────────────────────────────────────────────────────────────────────────────────────────────

    async def _secret(self) -> Json | None:
        try:
            return await self._api.get(Kind.SECRET, self._address.namespace, TLS_SECRET)
        except NotFoundError:
            return None

    async def _keep(self, secret: Json | None, material: Material | None) -> None:
        """First the configurations trust what is served, then the next step is taken, then they trust that too."""
        serving = self._front.material
        trouble: PortError | None = None
        try:
            if serving is not None and not await stand(self._api, await self._wanted(serving)):
                self._installed = False
                if secret is not None and material == serving:
                    secret, material = await self._with_next_count(secret, serving)
                await self._install(serving)
        except (ConflictError, AlreadyExistsError, NotFoundError):
            return  # another replica was faster; the next look sees it
        except PortError as error:
            # They cannot be told: no step that they must know of is taken, but a leaf is renewed before it runs out.
            trouble = error
            material = msgspec.structs.replace(material, since=self._clock.now()) if material is not None else None
        if trouble is None and secret is not None and self._at_rest(secret):
            self._installed = True
            return
        await self._advance(secret, material, serving)
        if trouble is not None:
            raise trouble
        self._installed = True

    async def _advance(self, secret: Json | None, material: Material | None, serving: Material | None) -> None:
        now = self._clock.now()
        following = advance(material, self._address.names(), now, serving)
        if following is material:
            if secret is not None and len(following.authorities) == 1:
                # At rest: verifying signatures again at every look would cost more than everything else here.
                self._checked = (secret["metadata"]["resourceVersion"], now + AT_REST_S)
            return
        try:
            await self._write(secret, following)
        except (ConflictError, AlreadyExistsError, NotFoundError):
            return  # another replica was faster; the next look sees it
        self._use(following)
        await self._install(following)

    def _at_rest(self, secret: Json) -> bool:
        if self._checked is None:
            return False
        version, until = self._checked
        return bool(version == secret["metadata"]["resourceVersion"] and self._clock.now() < until)

    async def _with_next_count(self, secret: Json, material: Material) -> tuple[Json, Material]:
        """In the middle of a rotation the API servers get the new caBundle only now (the leader before was killed, or
        could not write): the next step waits from now on. Written before that, so that being killed again here only
        delays the rotation."""
        now = float(int(self._clock.now()))
        if len(material.authorities) == 1 or now - material.since < EVERY_S:
            return secret, material
        material = msgspec.structs.replace(material, since=now)
        return await self._write(secret, material), material

    async def _write(self, secret: Json | None, material: Material) -> Json:
        body = secret or {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"namespace": self._address.namespace, "name": TLS_SECRET, "labels": dict(LABELS)},
        }
        body["data"] = {
            "ca.crt": _encoded(material.bundle),
            "ca.key": _encoded(material.authority_key),
            "tls.crt": _encoded(material.certificate),
            "tls.key": _encoded(material.key),
        }
        body["metadata"].setdefault("annotations", {})[SINCE] = f"{material.since:.0f}"
        if secret is None:
            return await self._api.create(Kind.SECRET, body)
        return await self._api.replace(Kind.SECRET, body)

    # ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _from_files(self) -> Material | None:
        """None: not there or not readable right now (a mounted Secret is being replaced); the next look finds it."""
        assert self._directory is not None
        try:
            certificate, key = ((self._directory / name).read_bytes() for name in ("tls.crt", "tls.key"))
            authority = self._directory / "ca.crt"
            authorities = split_bundle(authority.read_bytes()) if authority.exists() else ()
        except (OSError, CertificateError) as error:
            log.warning("webhook.certificates", error=str(error), directory=str(self._directory))
            return None
        return Material(authorities, certificate, key)


def _material(secret: Json) -> Material | None:
    """None: not readable; the leader recreates it."""
    data = secret.get("data") or {}
    since = ((secret.get("metadata") or {}).get("annotations") or {}).get(SINCE, "0")
    try:
        ca, ca_key, certificate, key = (
            base64.b64decode(data[name], validate=True) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")
        )
        return Material(split_bundle(ca), certificate, key, ca_key, float(since))
    except (KeyError, ValueError, binascii.Error):
        return None


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
