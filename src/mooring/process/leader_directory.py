"""Which driver serves a StatefulSet with leaders, where its members answer, and with which certificate.

Any user who may edit a StatefulSet can write its annotations, so they may name Services of its own namespace, and
beyond that only what an administrator has allowed (`leader-hosts`). The Secret is read by name in that namespace, with
the right that its owner has given us there (docs/leaders.md); without it only what needs no Secret is asked.
"""

import base64
import binascii
import ssl
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from mooring.clients.leaders import DRIVERS, PORTS
from mooring.clients.leaders.ask import HttpAsk
from mooring.clients.ports import Clock, KubeApi, LeaderDriver, NotFoundError, PortError, RefusedError
from mooring.clients.texts import printable, without_credentials
from mooring.clients.x509 import load_pair
from mooring.core.model.cluster import Key, Workload
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LEADERS_ENDPOINT, LEADERS_SECRET, driver_of
from mooring.core.world.members import members_of, ordinals
from mooring.core.world.read import WorldRead

#: How long a Secret that was read is used.
FRESH_S: Final = 60.0
#: Systems whose connections are kept.
MAX_SYSTEMS: Final = 256
#: The data of a Secret, decoded.
Secret = Mapping[str, bytes]
#: Driver, addresses by pod, Secret → the driver, and what closes its connections.
Make = Callable[[str, Mapping[str, str], Secret], LeaderDriver]


class LeaderDirectory:
    def __init__(
        self, world: WorldRead, api: KubeApi, clock: Clock, hosts: Iterable[str] = (), make: Make | None = None
    ) -> None:
        self._world, self._api, self._clock, self._hosts = world, api, clock, tuple(hosts)
        self._make = make
        self._secrets: dict[tuple[str, str], tuple[float, Secret]] = {}
        #: By StatefulSet: what it was made of, how it is asked.
        self._asks: dict[Key, tuple[Secret, HttpAsk]] = {}

    async def driver(self, key: Key) -> LeaderDriver:
        """NotFoundError: no such system. RefusedError: an annotation names what is not allowed."""
        workload = self._world.workload(Kind.STATEFUL_SET, key)
        name = driver_of(workload)
        if workload is None or name not in DRIVERS:
            raise NotFoundError(f"StatefulSet {key} names no driver")
        pods = {*members_of(workload, self._world), *(f"{workload.name}-{i}" for i in ordinals(workload))}
        addresses = addresses_of(workload, sorted(pods), self._hosts)
        secret = await self._secret(workload)
        if self._make is not None:
            return self._make(name, addresses, secret)
        known = self._asks.get(key)
        if known is None or known[0] != secret:
            if known is not None:
                await known[1].close()
            if len(self._asks) >= MAX_SYSTEMS:
                await self._asks.pop(next(iter(self._asks)))[1].close()
            known = self._asks[key] = (secret, HttpAsk(tls_of(secret, key), login_of(secret)))
        return DRIVERS[name](known[1], addresses)

    async def _secret(self, workload: Workload) -> Secret:
        name = workload.annotations.get(LEADERS_SECRET, "").strip()
        if not name:
            return {}
        at, found = self._secrets.get((workload.namespace, name), (0.0, {}))
        if at and self._clock.now() - at < FRESH_S:
            return found
        try:
            read = await self._api.get(Kind.SECRET, workload.namespace, name)
        except NotFoundError:
            raise RefusedError(f"{LEADERS_SECRET} names {printable(name)}, which does not exist") from None
        except PortError as error:
            raise RefusedError(f"Secret {workload.namespace}/{printable(name)} cannot be read: {error}") from None
        try:
            found = {k: base64.b64decode(v, validate=True) for k, v in (read.get("data") or {}).items()}
        except (binascii.Error, TypeError, AttributeError):
            raise RefusedError(f"Secret {workload.namespace}/{printable(name)} is not one that can be read") from None
        if len(self._secrets) >= MAX_SYSTEMS:
            self._secrets.clear()
        self._secrets[workload.namespace, name] = self._clock.now(), found
        return found

    async def close(self) -> None:
        for _, ask in self._asks.values():
            await ask.close()


def addresses_of(workload: Workload, pods: Iterable[str], hosts: Iterable[str] = ()) -> dict[str, str]:
    """Where each member answers. RefusedError: the annotation names an address that is not allowed, or none."""
    driver, scheme = driver_of(workload), "https" if LEADERS_SECRET in workload.annotations else "http"
    said = tuple(filter(None, (u.strip() for u in workload.annotations.get(LEADERS_ENDPOINT, "").split(","))))
    if not said and driver not in PORTS:
        raise RefusedError(f"{LEADERS_ENDPOINT} of {workload.key} is missing: {driver} has no address of its own")
    if not said:
        said = (f"{scheme}://{{pod}}.{workload.name}.{workload.namespace}.svc:{PORTS[driver]}",)
    found: dict[str, str] = {}
    for pod in pods:
        ordinal = pod.removeprefix(f"{workload.name}-")
        place = int(ordinal) - workload.ordinals_start if ordinal.isdecimal() and len(ordinal) < 10 else 0
        url = said[0] if len(said) == 1 else said[place] if 0 <= place < len(said) else ""
        if not url:
            continue
        url = url.replace("{pod}", pod).rstrip("/")
        if not may_ask(url, workload.namespace, hosts):
            shown = without_credentials(url)
            raise RefusedError(
                f"{LEADERS_ENDPOINT} of {workload.key} names {shown}, which is no Service of its namespace; an "
                "administrator allows an address with leader-hosts: [HOST:PORT]"
            )
        found[pod] = url
    return found


def may_ask(url: str, namespace: str, hosts: Iterable[str] = ()) -> bool:
    """A Service (or a pod behind a headless one) of this namespace, or what an administrator allows."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return False
    bare = not (parts.username or parts.password or parts.query or parts.fragment)
    if parts.scheme not in {"http", "https"} or not host or not bare or not url.isprintable():
        return False
    inside = host.removesuffix(".").removesuffix(".cluster.local")
    service = inside.removesuffix(f".{namespace}.svc")
    if inside != service and service and 1 <= len(service.split(".")) <= 2:
        return True
    address = f"{host}:{port or (443 if parts.scheme == 'https' else 80)}"
    return any(fnmatchcase(address, pattern.lower()) for pattern in hosts)


def login_of(secret: Secret) -> tuple[str, str] | None:
    """`username` and `password`, where the Secret has them (Patroni's restapi.authentication)."""
    user, password = secret.get("username"), secret.get("password")
    return (user.decode(errors="replace"), password.decode(errors="replace")) if user and password else None


def tls_of(secret: Secret, key: Key) -> ssl.SSLContext | None:
    """Its CA alone is trusted where it names one, and its client certificate shown. RefusedError: they do not fit."""
    if not secret.keys() & {"ca.crt", "tls.crt"}:
        return None
    context = ssl.create_default_context()
    try:
        if "ca.crt" in secret:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cadata=secret["ca.crt"].decode())
        if "tls.crt" in secret:
            load_pair(secret["tls.crt"], secret.get("tls.key", b""), context)
    except (ssl.SSLError, ValueError, OSError) as error:
        text = f"the certificates in the Secret of {key} do not fit: {printable(str(error))}"
        raise RefusedError(text) from None
    return context
