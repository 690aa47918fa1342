"""The directory of a lab. Only what a lab put there is ever removed."""

from pathlib import Path
from typing import Final

from mooring.lab.binaries import Binaries
from mooring.lab.errors import WrongRequestError

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
