"""How reading commands reach a running Mooring: its read-only API, over plain HTTP on loopback by default."""

import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Annotated, Any

from cyclopts import Parameter

from mooring.cli.exits import CommandError, Exit

DEFAULT = "http://127.0.0.1:8390"

#: The `--server` of every command that asks a running Mooring.
Server = Annotated[str, Parameter(help="Where Mooring answers (mooring run --listen-http), or MOORING_SERVER.")]


def ask(server: str, path: str, *, missing: str = "") -> Any:
    """GET one answer. Exit 4 when nobody answers, exit 1 with `missing` when the thing is not there."""
    base = server or os.environ.get("MOORING_SERVER", DEFAULT)
    if not base.startswith(("http://", "https://")):
        raise CommandError(f"--server {base}: an http:// or https:// address is wanted, e.g. {DEFAULT}")
    request = urllib.request.Request(  # noqa: S310 — the scheme is checked above
        base.rstrip("/") + urllib.parse.quote(path, safe="/?=&")
    )
    token = os.environ.get("MOORING_HTTP_TOKEN")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 404 and missing:
            raise CommandError(_said(error) or missing, Exit.NOT_AS_IT_SHOULD_BE) from None
        raise CommandError(f"{base} answered {error.code} {error.reason}", Exit.COULD_NOT_LOOK) from None
    except (urllib.error.URLError, OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise CommandError(
            f"no Mooring answers at {base}: {reason}; start one (mooring run) or name it with --server",
            Exit.COULD_NOT_LOOK,
        ) from None


def _said(error: urllib.error.HTTPError) -> str:
    """What the server says is wrong, when it says it in its own JSON."""
    try:
        told = json.load(error)
    except (ValueError, OSError):
        return ""
    return str(told.get("error", "")) if isinstance(told, dict) else ""
