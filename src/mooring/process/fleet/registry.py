"""What `mooring fleet` asks of sabakan, and of CKE."""

import http.client
import urllib.error
import urllib.request
from typing import Any

from mooring.clients.ports import PortError
from mooring.clients.sabakan.client import Sabakan
from mooring.core.model.exits import Exit, UserError
from mooring.core.model.machine import Machine


async def registry_machines(url: str, variables: Any) -> dict[str, Machine]:
    """By address."""
    if not url:
        raise UserError("no URL is set (mooring fleet set-url): labels come from the registry", Exit.COULD_NOT_LOOK)
    registry = Sabakan(url)
    try:
        return {m.address: m for m in await registry.machines(variables) if m.address}
    except PortError as error:
        raise UserError(f"sabakan does not answer at {url}: {error}", Exit.COULD_NOT_LOOK) from None
    finally:
        await registry.close()


def cke_is_on(metrics: str) -> bool:
    """Whether CKE's own sabakan integration generates the cluster."""
    try:
        return _generates(metrics)
    except OSError as error:
        raise UserError(f"--cke-metrics {metrics}: {error}", Exit.COULD_NOT_LOOK) from None
    except ValueError as error:
        raise UserError(f"--cke-metrics {metrics}: {error}") from None


def _generates(url: str) -> bool:
    """CKE shows this metric on its leader, and only while its integration is on.

    ValueError: the address is none. OSError: it did not answer.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError("must be an http:// or https:// address")
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 — the scheme is checked above
            return b"\ncke_sabakan_integration_timestamp_seconds" in b"\n" + answer.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from None
