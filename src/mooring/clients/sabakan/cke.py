"""Whether CKE generates the cluster from sabakan itself: CKE's /metrics say so."""

import http.client
import urllib.error
import urllib.request


def cke_generates(url: str) -> bool:
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
