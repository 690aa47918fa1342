"""Ports on 127.0.0.1 and the question "are you ready?", asked over HTTP."""

import http.client
import random
import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections import deque
from pathlib import Path
from typing import Final

from mooring_lab.control.binaries import Binaries
from mooring_lab.control.errors import LabError, WrongRequestError

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The directory of a lab. Only what a lab put there is ever removed.


#: Everything a lab puts into its directory. Nothing else is ever removed.
OURS: Final = ("lab.json", "kubeconfig", "bin", "conf", "data", "logs", "pki", "run")


def refuse_foreign_directory(root: Path) -> None:
    if root.is_dir():
        strange = sorted(path.name for path in root.iterdir() if path.name not in OURS)
        if strange:
            raise WrongRequestError(
                f"{root} holds {strange[0]}, not a file of a lab; name another directory with --dir"
            )
    elif root.exists():
        raise WrongRequestError(f"{root} is not a directory; name another with --dir")


def link_binaries(binaries: Binaries, into: Path) -> None:
    into.mkdir(exist_ok=True)
    for name, path in binaries.paths.items():
        link = into / name
        link.unlink(missing_ok=True)
        link.symlink_to(path)


#: Below the range from which the system picks ports for outgoing connections: a server that is stopped and started
#: again finds its port free. Above the ports that well-known services take.
PORTS: Final = range(20000, 32000)
_TRIES: Final = 500
#: The last ones that were found, until their servers listen: several labs may look at the same time.
_reserved: Final[deque[socket.socket]] = deque()
_MOST_RESERVED: Final = 128


def free_ports(count: int) -> list[int]:
    """Ports that are free just now, all different."""
    found: list[int] = []
    for port in random.sample(PORTS, k=_TRIES):
        if len(found) == count:
            break
        if _reserve(port):
            found.append(port)
    if len(found) < count:
        raise LabError(f"found only {len(found)} of {count} free ports on 127.0.0.1 in {PORTS.start}-{PORTS.stop}")
    return found


def answers(url: str, timeout_s: float = 10.0) -> bool:
    """Whether a GET is answered with 200. False for no answer and for every error."""
    # These are our own servers on loopback, and nothing secret is sent: the answer is only a health check.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),  # a proxy in the environment knows nothing of our loopback
        urllib.request.HTTPSHandler(context=context),
    )
    try:
        with opener.open(url, timeout=timeout_s) as response:
            return bool(response.status == http.HTTPStatus.OK)
    except (urllib.error.URLError, OSError, http.client.HTTPException):
        return False


def _reserve(port: int) -> bool:
    """False: it is taken. From then on no other process finds it, and the server that it is for can listen on it."""
    probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        probe.close()
        return False
    if sys.platform == "linux":
        # Servers set this, too, so they may listen beside a socket that does not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _reserved.append(probe)
        if len(_reserved) > _MOST_RESERVED:
            _reserved.popleft().close()
    else:
        probe.close()
    return True
