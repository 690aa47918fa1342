"""`mooring lab`: a real Kubernetes control plane on this machine, to try things on."""

import contextlib
import signal
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mooring.cli.output import Format, Output, Whole, note, print_data, print_table
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from mooring_lab.control.cluster import Lab

app = App(name="lab", help="A real Kubernetes control plane on this machine's loopback, to try Mooring on.")

Dir = Annotated[Path | None, Parameter(name="--dir", help="The lab's own directory. Default: under ~/.local/state.")]
K8s = Annotated[str | None, Parameter(name="--k8s", help="Kubernetes version, as 1.36. Default: $MOORING_K8S or 1.36.")]


@app.command
def up(
    *,
    dir: Dir = None,  # noqa: A002 - the flag's name
    nodes: Annotated[Whole, Parameter(help="How many nodes to create (8 CPUs, 32 GiB each).")] = 3,
    with_: Annotated[str, Parameter(name="--with", help="Real neighbours beside it: pd, sabakan or both.")] = "",
    k8s: K8s = None,
    output: Output = Format.TABLE,
) -> None:
    """Start etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok on free ports of 127.0.0.1.

    The programs come from MOORING_BIN_DIR, else from a cache, else they are built once with Go. Nothing outside the
    lab's directory is touched, least of all ~/.kube/config.

    Example: mooring lab up --nodes 5

    Example: mooring lab up --with pd,sabakan -o json
    """
    from mooring_lab.control import build
    from mooring_lab.control.binaries import find, release
    from mooring_lab.control.cluster import EXTRAS, Lab
    from mooring_lab.control.summary import default_dir

    if nodes < 0:
        raise UserError(f"--nodes {nodes}: a lab has 0 nodes or more")
    extras = _listed(with_, EXTRAS)
    directory = dir or default_dir()
    lab = Lab.open(directory)
    if lab is not None:
        revived = lab.revive()
        note(
            f"the lab in {directory} ({lab.state.release.version}) "
            + (f"had lost {', '.join(revived)}: started again" if revived else "is already up")
            + "; --nodes, --with and --k8s count for a new lab alone"
        )
    else:
        with _sigterm_as_ctrl_c():
            binaries = find(release(k8s), build=build.build)
            lab = Lab.up(directory, binaries, extras=extras, say=note)
            _add_nodes(lab, nodes)
    _print_lab(lab, directory, output)


@app.command
def down(
    *,
    dir: Dir = None,  # noqa: A002 - the flag's name
    keep_logs: Annotated[bool, Parameter(negative="", help="Keep the servers' logs.")] = False,
) -> None:
    """End the lab and remove what it wrote; nothing is left running.

    Example: mooring lab down

    Example: mooring lab down --keep-logs
    """
    from mooring_lab.control.cluster import Lab
    from mooring_lab.control.summary import default_dir

    directory = dir or default_dir()
    lab = Lab.open(directory)
    if lab is None:
        note(f"there is no lab in {directory}: nothing to end")
        return
    ended = [name for name, pid in lab.pids().items() if pid]
    lab.down(keep_logs=keep_logs)
    note(f"ended {', '.join(ended) or 'nothing (it had stopped)'}; leftovers: {'the logs' if keep_logs else 'none'}")


@app.command
def status(*, dir: Dir = None, output: Output = Format.TABLE) -> int:  # noqa: A002 - the flag's name
    """Show which servers of the lab run; exit 1 unless all of them do.

    Example: mooring lab status

    Example: mooring lab status -o json
    """
    from mooring_lab.control.cluster import Lab
    from mooring_lab.control.summary import command, default_dir, facts, is_up

    directory = dir or default_dir()
    lab = Lab.open(directory)
    pids = lab.pids() if lab else {}
    if output.data:
        print_data(output, (facts(lab) if lab else {}) | {"up": is_up(pids), "pids": pids})
    elif lab is None:
        note(f"there is no lab in {directory}; `{command('up', directory)}` starts one")
    else:
        print_table(
            ("SERVER", "STATE", "PID"),
            [(name, "runs" if pid else "gone", str(pid or "-")) for name, pid in pids.items()],
        )
        note(f"logs: {lab.dir / 'logs'}")
    return Exit.DONE if is_up(pids) else Exit.CHECK_FAILED


@app.command(name="build")
def build_programs(
    *,
    k8s: K8s = None,
    tools: Annotated[
        bool, Parameter(negative="", help="Also helm3, helm4 and promtool, which only tests use.")
    ] = False,
    with_: Annotated[
        str, Parameter(name="--with", help="Also these, which take pods away by themselves: karpenter, descheduler.")
    ] = "",
    output: Output = Format.TABLE,
) -> None:
    """Make sure the programs are there: find them, or build them once with Go.

    Example: mooring lab build --k8s 1.35

    Example: mooring lab build --tools

    Example: mooring lab build --with karpenter,descheduler
    """
    from mooring_lab.control import build
    from mooring_lab.control.binaries import ABSENT, OPTIONAL, find, release
    from mooring_lab.control.build import NEIGHBOURS, build_neighbour, build_tools, find_neighbour, find_tools

    neighbours = _listed(with_, NEIGHBOURS)
    with _sigterm_as_ctrl_c():
        binaries = find(release(k8s), build=build.build)
        beside = find_tools(build=build_tools) if tools else {}
        beside |= {name: find_neighbour(name, build=build_neighbour) for name in neighbours}
    if output.data:
        programs = {name: str(path) for name, path in (binaries.paths | beside).items()}
        print_data(output, {"k8s": binaries.release.version, "programs": programs})
        return
    homes = sorted({str(path.parent) for path in binaries.paths.values()})
    note(f"Kubernetes {binaries.release.version}, etcd and kwok: {', '.join(homes)}")
    if beside:
        note(f"{', '.join(beside)}: {', '.join(sorted({str(path.parent) for path in beside.values()}))}")
    for name in OPTIONAL:
        if binaries.optional(name) is None:
            note(f"{ABSENT[name]}: the sandbox's server answers instead")


@app.command
def add(
    programs: Annotated[
        list[str], Parameter(name="NAME=PATH", negative="", help="Which program it is, and where it is now.")
    ],
    /,
) -> None:
    """Keep a copy of a pd-server or a sabakan in the lab's cache, where labs and `make e2e` find it from then on.

    They are in no package registry, so the lab builds neither. MOORING_BIN_DIR, where set, still comes first.

    Example: mooring lab add pd-server=./bin/pd-server

    Example: mooring lab add pd-server=./pd-server sabakan=./sabakan
    """
    from mooring_lab.control.binaries import add as keep

    for given in programs:
        name, equals, path = given.partition("=")
        if not (equals and name and path):
            raise UserError(f"{given}: should be NAME=PATH, as pd-server=./bin/pd-server")
        note(f"{name}: kept in {keep(name, Path(path).expanduser())}")


def _listed(with_: str, known: Collection[str]) -> list[str]:
    """What `--with` names; looked at before anything is built, which takes minutes."""
    names = [name.strip() for name in with_.split(",") if name.strip()]
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"--with {unknown[0]}: the lab knows {' and '.join(known)}")
    return names


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """During build and start SIGTERM is handled like Ctrl-C: nothing is left running."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        note("stopped; leftovers: none")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _add_nodes(lab: "Lab", nodes: int) -> None:
    try:
        lab.add_nodes(nodes)
    except BaseException as error:
        lab.down(keep_logs=isinstance(error, Exception))
        raise


def _print_lab(lab: "Lab", directory: Path, output: Format) -> None:
    from mooring_lab.control.summary import addresses, facts, hints

    if output.data:
        print_data(output, facts(lab))
        return
    print_table(("WHAT", "WHERE"), addresses(lab))
    note(hints(lab, directory))
