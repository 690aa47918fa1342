"""A running Mooring, asked over its read-only API; the one in a cluster is reached by `kubectl port-forward`."""

import atexit
import contextlib
import http.client
import json
import os
import re
import selectors
import shutil
import ssl
import subprocess
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, Final

from mooring.clients.kube.config import KubeconfigError, load
from mooring.core.model.exits import Exit, UserError

#: Where a Mooring answers on this machine: the demo, `mooring run`.
HERE: Final = "http://127.0.0.1:8390"
#: Encrypted, and no question who answers: for a certificate that a replica made itself.
UNVERIFIED: Final = "https+unverified://"
PORT: Final = 8390
FORWARD_S: Final = 10.0
_LOGGED: Final = re.compile(r"[EWIF]\d{4} ")


class NoAnswerError(Exception):
    """No answer, and why, in words."""


def trusting(base: str) -> tuple[str, ssl.SSLContext | None]:
    """The address as it is asked, and whom to trust; None: the authorities of this machine, or of SSL_CERT_FILE."""
    if not base.startswith(UNVERIFIED):
        return base, None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return base.replace(UNVERIFIED, "https://", 1), context


def get(base: str, path: str, missing: str, timeout_s: float, read: Callable[[Any], Any]) -> Any:
    url, trust = trusting(base)
    if not url.startswith(("http://", "https://")):
        raise UserError(f"--server {base}: must be an http:// or https:// address, e.g. {HERE}")
    request = urllib.request.Request(  # noqa: S310 — the scheme is checked above
        url.rstrip("/") + urllib.parse.quote(path, safe="/?=&")
    )
    token = os.environ.get("MOORING_HTTP_TOKEN")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=timeout_s, context=trust) as answer:  # noqa: S310
            return read(answer)
    except urllib.error.HTTPError as error:
        with error:  # it holds the connection
            if error.code == 404 and missing:
                raise UserError(_said(error) or missing, Exit.CHECK_FAILED) from None
            hint = "; set MOORING_HTTP_TOKEN to the token of its Secret mooring-http" if error.code == 401 else ""
            raise UserError(f"{base} answered {error.code} {error.reason}{hint}", Exit.UNREACHABLE) from None
    except (urllib.error.URLError, OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswerError(_trouble(error)) from None


def _trouble(error: Exception) -> str:
    """In words, without numbers of the operating system."""
    inner = getattr(error, "reason", error)
    if isinstance(inner, json.JSONDecodeError):
        return "what answers there is no Mooring"
    if isinstance(inner, ssl.SSLCertVerificationError):
        ways = f"name its authority (SSL_CERT_FILE=ca.crt), or do not check it ({UNVERIFIED}…)"
        return f"{inner.verify_message}; {ways}"
    return str(getattr(inner, "strerror", None) or inner)


def _said(error: urllib.error.HTTPError) -> str:
    """What the server says is wrong, when it says it in its own JSON."""
    try:
        told = json.load(error)
    except (ValueError, OSError):
        return ""
    return str(told.get("error", "")) if isinstance(told, dict) else ""


# ── The one in the cluster ────────────────────────────────────────────────────────────────────────────────────────


class Forward:
    """A port of this machine that leads to the Mooring of a cluster, until it is closed or this process ends."""

    def __init__(self, child: "subprocess.Popen[str]", port: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._child = child
        # kubectl prints a line per connection, and stops forwarding where nobody reads them.
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # closed meanwhile
            while self._child.stdout.read(4096):
                pass

    def close(self) -> None:
        _end(self._child)


def forward(kubeconfig: str, context: str, namespace: str) -> Forward:
    """Raises KubeconfigError, and NoAnswerError where no port can be forwarded."""
    try:
        load(kubeconfig or None, context=context)
    except KubeconfigError as error:
        if kubeconfig or context:
            raise
        raise NoAnswerError(str(error)) from None  # no kubeconfig was named
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise NoAnswerError("kubectl is not in PATH, which would forward a port")
    flags = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    flags += [f"--context={context}"] if context else []
    try:
        return _forward_from(namespace, kubectl, flags)
    except NoAnswerError as error:
        installed = _namespaces(kubectl, flags) if "not found" in str(error) else []
        if len(installed) != 1:
            raise
    return _forward_from(installed[0], kubectl, flags)


def _forward_from(namespace: str, kubectl: str, flags: list[str]) -> Forward:
    command = [kubectl, *flags, "-n", namespace, "port-forward", "deploy/mooring", f":{PORT}"]
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, text=True)
        atexit.register(_end, child)
        found = re.search(r"Forwarding from 127\.0\.0\.1:(\d+)", _first_line(child))
        if found is None:
            _end(child)
            said.seek(0)
            # What its libraries log (E1116 21:12:03 …) is not for people; its last sentence is.
            lines = [line for line in said.read().splitlines() if line.strip() and not _LOGGED.match(line)]
            raise NoAnswerError(lines[-1].strip() if lines else f"kubectl did not forward a port in {FORWARD_S:.0f} s")
    return Forward(child, found[1])


def _namespaces(kubectl: str, flags: list[str]) -> list[str]:
    """Where Mooring is installed in that cluster, when it is not in the namespace that it has by default."""
    asked = ["get", "deployments", "-A", "-l", "app.kubernetes.io/name=mooring"]
    names = "jsonpath={range .items[?(@.metadata.name=='mooring')]}{.metadata.namespace} {end}"
    command = [kubectl, *flags, *asked, "-o", names, f"--request-timeout={FORWARD_S:.0f}s"]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout.split()


def _first_line(child: "subprocess.Popen[str]") -> str:
    """What it printed first; "" when it ended, or when time is up."""
    assert child.stdout is not None
    with selectors.DefaultSelector() as ready:
        ready.register(child.stdout, selectors.EVENT_READ)
        return child.stdout.readline() if ready.select(FORWARD_S) else ""


def _end(child: "subprocess.Popen[str]") -> None:
    if child.poll() is None:
        child.terminate()
        child.wait(5)
