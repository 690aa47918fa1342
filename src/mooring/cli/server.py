"""How reading commands reach a running Mooring: its read-only API.

`--server` or MOORING_SERVER, else loopback (the demo, `mooring run`), else the one in the cluster of the kubeconfig: by
`kubectl port-forward`, for the time of the command. That is what `kubectl mooring why …` does.
"""

import atexit
import http.client
import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from mooring.cli.connect import Context, Kubeconfig, connection_of
from mooring.core.model.exits import Exit, UserError

DEFAULT: Final = "http://127.0.0.1:8390"
OWN_NAMESPACE: Final = "mooring-system"
PORT: Final = 8390
ANSWER_S: Final = 10.0
FORWARD_S: Final = 10.0
HOW: Final = f"""reach one with one of these:
  kubectl -n {OWN_NAMESPACE} port-forward deploy/mooring {PORT}
  mooring demo --keep
  --server http://HOST:PORT, or MOORING_SERVER"""

#: The `--server` of every command that asks a running Mooring.
Server = Annotated[str, Parameter(help="Where Mooring answers (mooring run --listen-http), or MOORING_SERVER.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Reach:
    """Where the running Mooring is."""

    server: Server = ""
    kubeconfig: Kubeconfig = ""
    context: Context = ""
    #: The namespace of the one in that cluster.
    own: Annotated[str, Parameter(show=False, parse=False)] = OWN_NAMESPACE


HERE: Final = Reach()
_LOGGED: Final = re.compile(r"[EWIF]\d{4} ")
#: Address of the Mooring behind a kubeconfig, while the command runs.
_forwarded: dict[Reach, str] = {}


def ask(
    reach: Reach | str,
    path: str,
    *,
    missing: str = "",
    timeout_s: float = ANSWER_S,
    forward: bool = True,
    read: Callable[[Any], Any] = json.load,
) -> Any:
    """GET one answer. Exit 4 when there is no answer, exit 1 with `missing` when the thing is not there.

    `forward`: where there is no answer on loopback, look in the cluster of the kubeconfig. `read` takes the answer's
    body.
    """
    where = Reach(server=reach) if isinstance(reach, str) else reach
    named = where.server or os.environ.get("MOORING_SERVER", "")
    base = named or _forwarded.get(where, "") or ("" if where.kubeconfig or where.context else DEFAULT)
    tried = "in"
    if base:
        try:
            return _get(base, path, missing, timeout_s, read)
        except _NoAnswerError as error:
            tried = f"at {base}: {error}"
            if named or where in _forwarded or not (forward and _has_kubeconfig(where)):
                raise UserError(f"no Mooring answers {tried}; {HOW}", Exit.COULD_NOT_LOOK) from None
            tried += "; nor in"
    try:
        base = _forwarded[where] = _forward(where)
        return _get(base, path, missing, timeout_s, read)
    except _NoAnswerError as error:
        said = f"no Mooring answers {tried} the cluster of the kubeconfig: {error}; {HOW}"
        raise UserError(said, Exit.COULD_NOT_LOOK) from None


class _NoAnswerError(Exception):
    pass


def _get(base: str, path: str, missing: str, timeout_s: float, read: Callable[[Any], Any]) -> Any:
    if not base.startswith(("http://", "https://")):
        raise UserError(f"--server {base}: must be an http:// or https:// address, e.g. {DEFAULT}")
    request = urllib.request.Request(  # noqa: S310 — the scheme is checked above
        base.rstrip("/") + urllib.parse.quote(path, safe="/?=&")
    )
    token = os.environ.get("MOORING_HTTP_TOKEN")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
            return read(answer)
    except urllib.error.HTTPError as error:
        with error:  # it holds the connection
            if error.code == 404 and missing:
                raise UserError(_said(error) or missing, Exit.NOT_AS_IT_SHOULD_BE) from None
            hint = "; set MOORING_HTTP_TOKEN to the token of its Secret mooring-http" if error.code == 401 else ""
            raise UserError(f"{base} answered {error.code} {error.reason}{hint}", Exit.COULD_NOT_LOOK) from None
    except (urllib.error.URLError, OSError, http.client.HTTPException, ValueError) as error:
        raise _NoAnswerError(_trouble(error)) from None


def _trouble(error: Exception) -> str:
    """In words, without numbers of the operating system."""
    inner = getattr(error, "reason", error)
    if isinstance(inner, json.JSONDecodeError):
        return "what answers there is no Mooring"
    return str(getattr(inner, "strerror", None) or inner)


def _said(error: urllib.error.HTTPError) -> str:
    """What the server says is wrong, when it says it in its own JSON."""
    try:
        told = json.load(error)
    except (ValueError, OSError):
        return ""
    return str(told.get("error", "")) if isinstance(told, dict) else ""


# ── The one in the cluster ────────────────────────────────────────────────────────────────────────────────────────


def _has_kubeconfig(where: Reach) -> bool:
    files = [where.kubeconfig] if where.kubeconfig else os.environ.get("KUBECONFIG", "").split(os.pathsep)
    return any(file and Path(file).exists() for file in (*files, str(Path.home() / ".kube" / "config")))


def _forward(where: Reach) -> str:
    """A port of ours that leads to the Mooring of that cluster, until this process ends."""
    try:
        connection_of(where.kubeconfig, where.context)
    except UserError as error:
        if where.kubeconfig or where.context:
            raise
        raise _NoAnswerError(str(error)) from None  # no kubeconfig was named
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise _NoAnswerError("kubectl is not in PATH, which would forward a port")
    flags = [f"--kubeconfig={where.kubeconfig}"] if where.kubeconfig else []
    flags += [f"--context={where.context}"] if where.context else []
    try:
        return _forward_from(where.own, kubectl, flags)
    except _NoAnswerError as error:
        installed = _namespaces(kubectl, flags) if "not found" in str(error) else []
        if len(installed) != 1:
            raise
    return _forward_from(installed[0], kubectl, flags)


def _forward_from(namespace: str, kubectl: str, flags: list[str]) -> str:
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
            raise _NoAnswerError(lines[-1].strip() if lines else f"kubectl did not forward a port in {FORWARD_S:.0f} s")
    return f"http://127.0.0.1:{found[1]}"


def _namespaces(kubectl: str, flags: list[str]) -> list[str]:
    """Where Mooring is installed in that cluster, when it is not in the namespace that it has by default."""
    asked = ["get", "deployments", "-A", "-l", "app.kubernetes.io/name=mooring"]
    names = "jsonpath={range .items[?(@.metadata.name=='mooring')]}{.metadata.namespace} {end}"
    command = [kubectl, *flags, *asked, "-o", names, f"--request-timeout={FORWARD_S:.0f}s"]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout.split()


def _first_line(child: "subprocess.Popen[str]") -> str:
    """What it printed first; "" when it ended, or when time is up."""
    import selectors

    assert child.stdout is not None
    with selectors.DefaultSelector() as ready:
        ready.register(child.stdout, selectors.EVENT_READ)
        return child.stdout.readline() if ready.select(FORWARD_S) else ""


def _end(child: "subprocess.Popen[str]") -> None:
    if child.poll() is None:
        child.terminate()
        child.wait(5)
