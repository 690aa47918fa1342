"""Texts of others, made safe to print: in errors, logs, Events and on terminals.

A server or a tenant chooses these: no control characters (a terminal obeys them), no credentials, never long.
"""

from typing import Final
from urllib.parse import urlsplit, urlunsplit

MAX_PRINTED: Final = 160


def printable(text: str, most: int = MAX_PRINTED) -> str:
    """One line, at most so long; what a terminal could obey is a question mark."""
    one_line = " ".join(text[: 4 * most].split())
    shown = "".join(c if c.isprintable() else "?" for c in one_line)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def without_credentials(url: str) -> str:
    """The URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        return printable(urlunsplit((parts.scheme, host, parts.path, "", "")))
    except ValueError:
        return "an address that cannot be read"
