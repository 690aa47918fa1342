"""A real machine registry beside the control plane, when its program is at hand."""

from pathlib import Path
from typing import Final

from mooring.lab.processes import Server

ABSENT: Final = (
    "sabakan is not in MOORING_BIN_DIR and in no package registry: no real sabakan here, the sandbox's answers instead"
)
#: Where it keeps everything in etcd.
ETCD_PREFIX: Final = "/sabakan/"
#: http, https, metrics, dhcp
PORTS_NEEDED: Final = 4


def sabakan(program: Path, directory: Path, ports: list[int], *, etcd: str, tls: tuple[Path, Path]) -> Server:
    """A registry on the lab's etcd. It insists on every one of these flags."""
    http, https, metrics, dhcp = ports
    data = (directory / "data" / "sabakan").absolute()
    data.mkdir(parents=True, exist_ok=True)
    return Server(
        name="sabakan",
        argv=(
            str(program),
            *("-http", f"127.0.0.1:{http}"),
            *("-https", f"127.0.0.1:{https}"),
            *("-metrics", f"127.0.0.1:{metrics}"),
            *("-dhcp-bind", f"127.0.0.1:{dhcp}"),
            *("-data-dir", str(data)),
            *("-advertise-url", sabakan_url(http)),
            *("-advertise-url-https", f"https://127.0.0.1:{https}"),
            *("-server-cert", str(tls[0])),
            *("-server-key", str(tls[1])),
            *("-etcd-endpoints", etcd),
        ),
        ready_url=f"{sabakan_url(http)}/health",
    )


def sabakan_url(port: int) -> str:
    return f"http://127.0.0.1:{port}"
