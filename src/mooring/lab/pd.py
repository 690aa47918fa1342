"""A real placement driver beside the control plane, when its program is at hand."""

from pathlib import Path
from typing import Final

from mooring.lab.processes import Server

ABSENT: Final = (
    "pd-server is not in MOORING_BIN_DIR and in no package registry: no real PD here, the sandbox's answers instead"
)


def pd_servers(program: Path, directory: Path, ports: list[int], *, first: int = 1) -> list[Server]:
    """A PD cluster of as many members as there are pairs of ports (client, peer)."""
    members = [(f"pd{n}", ports[2 * i], ports[2 * i + 1]) for i, n in enumerate(range(first, first + len(ports) // 2))]
    together = ",".join(f"{name}=http://127.0.0.1:{peer}" for name, _, peer in members)
    return [
        Server(
            name=name,
            argv=(
                str(program),
                f"--name={name}",
                f"--data-dir={directory / 'data' / name}",
                f"--client-urls={pd_url(client)}",
                f"--peer-urls=http://127.0.0.1:{peer}",
                f"--initial-cluster={together}",
                f"--log-file={directory / 'logs' / f'{name}-server.log'}",
            ),
            ready_url=f"{pd_url(client)}/pd/api/v1/health",
        )
        for name, client, peer in members
    ]


def pd_url(port: int) -> str:
    return f"http://127.0.0.1:{port}"
