"""What there is to say of a lab: where its servers answer, what to export, how to end it."""

import os
import shlex
from pathlib import Path
from typing import Any

from mooring_lab.control.cluster import Lab


def addresses(lab: Lab) -> list[tuple[str, str]]:
    rows = [("apiserver", lab.apiserver), ("etcd", lab.etcd), ("kubeconfig", str(lab.kubeconfig))]
    rows += [("pd", url) for url in lab.state.pd]
    return rows + ([("sabakan", lab.state.sabakan)] if lab.state.sabakan else [])


def hints(lab: Lab, directory: Path) -> str:
    return (
        f"\nexport KUBECONFIG={shlex.quote(str(lab.kubeconfig))}\n"
        f"export PATH={shlex.quote(str(lab.layout.bin))}:$PATH   # the kubectl of this version\n"
        "kubectl get nodes\n"
        f"{command('down', directory)}   # when you are done; leftovers: none"
    )


def facts(lab: Lab) -> dict[str, Any]:
    return {
        "kubeconfig": str(lab.kubeconfig),
        "apiserver": lab.apiserver,
        "etcd": lab.etcd,
        "pd": list(lab.state.pd),
        "sabakan": lab.state.sabakan,
        "pids": lab.pids(),
        "bin_dir": str(lab.layout.bin),
        "dir": str(lab.dir),
        "k8s": lab.state.release.version,
    }


def is_up(pids: dict[str, int | None]) -> bool:
    return bool(pids) and all(pids.values())


def default_dir() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "mooring" / "lab"


def command(verb: str, directory: Path) -> str:
    return f"mooring lab {verb}" + ("" if directory == default_dir() else f" --dir {shlex.quote(str(directory))}")
