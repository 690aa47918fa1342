"""Credentials as they are now: tokens rotate, certificates are renewed, plugins hand out something that expires.

A `Credential` is a value good for the next request. `Credentials.current()` keeps it for a while (files are read again
every minute, a plugin is asked again shortly before its answer expires), and `refused()` (a 401) throws it away, so the
next request starts fresh. Nothing here is ever logged.
"""

import asyncio
import base64
import datetime as dt
import os
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from mooring.clients.kube.config import Connection, Exec, KubeconfigError, reason

#: Service account tokens are renewed by the kubelet at 80 % of their life; a minute is far quicker than they expire.
REREAD_S: Final = 60.0
#: Ask the plugin again this long before its answer expires: a request under way must still pass.
EXPIRY_MARGIN_S: Final = 30.0
EXEC_TIMEOUT_S: Final = 60.0


class Credential(msgspec.Struct, frozen=True):
    """What one request carries: an Authorization header, a client certificate, or both, or neither."""

    authorization: str = ""
    certificate_pem: str = ""
    key_pem: str = ""


class Credentials:
    """The current credential of one connection. Raises ConfigError when there is none to be had."""

    def __init__(
        self,
        connection: Connection,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._connection = connection
        self._monotonic = monotonic
        self._wall = wall
        self._kept: Credential | None = None
        self._good_until = 0.0
        self._asking = asyncio.Lock()

    async def current(self) -> Credential:
        if self._kept is not None and self._monotonic() < self._good_until:
            return self._kept
        async with self._asking:
            if self._kept is None or self._monotonic() >= self._good_until:
                self._kept, self._good_until = await self._fresh()
            return self._kept

    def refused(self, credential: Credential) -> None:
        """The server answered 401 to this one: do not use it again (unless it has been replaced meanwhile)."""
        if self._kept is credential:
            self._kept = None

    async def _fresh(self) -> tuple[Credential, float]:
        user = self._connection.user
        if user.exec is not None:
            return await self._ask_plugin(user.exec)
        authorization = ""
        if user.token_file is not None:
            authorization = f"Bearer {_token(user.token_file)}"
        elif user.token:
            authorization = f"Bearer {user.token}"
        elif user.username:
            pair = f"{user.username}:{user.password}".encode()
            authorization = f"Basic {base64.b64encode(pair).decode()}"
        fresh = Credential(
            authorization,
            user.certificate.read("client certificate") if user.certificate else "",
            user.key.read("client key") if user.key else "",
        )
        # The same object while nothing changed: TLS contexts and connections are kept by it.
        return (self._kept if fresh == self._kept and self._kept else fresh), self._monotonic() + REREAD_S

    async def _ask_plugin(self, plugin: Exec) -> tuple[Credential, float]:
        answer = await _run(plugin, self._connection)
        status = answer.status
        if status is None or not (status.token or (status.client_certificate_data and status.client_key_data)):
            raise KubeconfigError(
                f"exec plugin {plugin.command}: its answer has neither a token nor a certificate with key"
            )
        good_for = float("inf")
        if status.expiration_timestamp is not None:
            left = status.expiration_timestamp.timestamp() - self._wall()
            # A credential shorter-lived than the margin is used for half of what is left, not asked for in a loop.
            good_for = max(left - EXPIRY_MARGIN_S, left / 2, 0.0)
        fresh = Credential(
            f"Bearer {status.token}" if status.token else "", status.client_certificate_data, status.client_key_data
        )
        return fresh, self._monotonic() + good_for


def _token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"token file {path}: {reason(error)}") from error
    if not token:
        raise KubeconfigError(f"token file {path} is empty")
    return token


# ── Exec plugins ──────────────────────────────────────────────────────────────────────────────────────────────────


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: dt.datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


def _exec_info(plugin: Exec, connection: Connection) -> str:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        cluster: dict[str, Any] = {"server": connection.server}
        if connection.ca:
            pem = connection.ca.read("certificate authority").encode()
            cluster["certificate-authority-data"] = base64.b64encode(pem).decode()
        if connection.insecure:
            cluster["insecure-skip-tls-verify"] = True
        if connection.tls_server_name:
            cluster["tls-server-name"] = connection.tls_server_name
        spec["cluster"] = cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return msgspec.json.encode(info).decode()


async def _run(plugin: Exec, connection: Connection) -> _ExecCredential:
    name = f"exec plugin {plugin.command}"
    env = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": _exec_info(plugin, connection)}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
        )
    except OSError as error:
        hint = f" {plugin.install_hint.strip()}" if plugin.install_hint else ""
        raise KubeconfigError(
            f"{name}: {reason(error)}; install it or correct users[].user.exec.command.{hint}"
        ) from error
    try:
        out, err = await asyncio.wait_for(process.communicate(), EXEC_TIMEOUT_S)
    except TimeoutError as error:
        raise KubeconfigError(f"{name}: no answer within {EXEC_TIMEOUT_S:.0f} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = err.decode(errors="replace").strip().splitlines()
        raise KubeconfigError(f"{name}: exit code {process.returncode}: {said[-1] if said else 'it printed nothing'}")
    try:
        answer = msgspec.json.decode(out, type=_ExecCredential)
    except msgspec.MsgspecError as error:
        raise KubeconfigError(f"{name}: its answer is not an ExecCredential ({error})") from error
    if answer.kind != "ExecCredential" or answer.api_version != plugin.api_version:
        raise KubeconfigError(
            f"{name}: it answered {answer.api_version} {answer.kind}; {plugin.api_version} ExecCredential was asked for"
        )
    return answer


# ── TLS ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def tls_context(connection: Connection, credential: Credential) -> ssl.SSLContext | None:
    """The TLS side of a connection with this credential; None for plain http (`kubectl proxy`)."""
    if not connection.server.startswith("https://"):
        return None
    try:
        ca = connection.ca.read("certificate authority") if connection.ca else None
        context = ssl.create_default_context(cadata=ca)
    except (ssl.SSLError, ValueError) as error:
        raise KubeconfigError(
            f"certificate authority of {connection.source}: not a PEM certificate ({error})"
        ) from error
    # Cluster authorities are often made by hand and lack key identifiers; Go accepts them, as Python did until 3.13.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if connection.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credential.certificate_pem:
        _load_pair(context, credential, connection.source)
    return context


def _load_pair(context: ssl.SSLContext, credential: Credential, source: str) -> None:
    """OpenSSL takes files only here: the pair passes through a private one that lives for this call."""
    with tempfile.NamedTemporaryFile("w", prefix="mooring-", suffix=".pem") as pair:
        pair.write(f"{credential.certificate_pem}\n{credential.key_pem}\n")
        pair.flush()
        try:
            # Without a password given, OpenSSL would ask on the terminal.
            context.load_cert_chain(pair.name, password=b"")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise KubeconfigError(
                f"client certificate of {source}: not a PEM certificate with its own, unencrypted key ({error})"
            ) from error
