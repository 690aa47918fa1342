"""One lab: a directory, the servers that run in it, and operations on them.

    absent ──up──► running ──down──► absent
                     │  ▲
       stop/kill one ▼  │ start/restart one

Servers start in the order etcd, API server, all others, and end the other way round: the API server does not end
while its etcd is gone, so etcd goes last.
"""

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlencode

import msgspec

from mooring_lab.control import controlplane, loopback, servers
from mooring_lab.control.api import ApiConnection
from mooring_lab.control.binaries import Binaries, Release
from mooring_lab.control.controlplane import Layout, Ports
from mooring_lab.control.errors import LabError, WrongRequestError
from mooring_lab.control.loopback import OURS, link_binaries, refuse_foreign_directory
from mooring_lab.control.processes import READY_WITHIN_S, Processes, Server, run

#: The order of starting: each wave waits until the one before it is ready.
WAVES: Final = (("etcd",), ("kube-apiserver",), ("kube-controller-manager", "kube-scheduler", "kwok"))
EXTRAS: Final = ("pd", "sabakan")


class LabState(msgspec.Struct, frozen=True):
    """What is written into `lab.json`: enough for another process to find this lab again."""

    release: Release
    ports: Ports
    binaries: dict[str, str]
    pd: tuple[str, ...] = ()
    sabakan: str | None = None


class Lab:
    """A running lab. `Lab.up` starts one, `Lab.open` finds one that was started before."""

    def __init__(self, layout: Layout, state: LabState, processes: Processes) -> None:
        self.dir = layout.root
        self.layout = layout
        self.state = state
        self.processes = processes
        self.binaries = Binaries(
            release=state.release, paths={name: Path(path) for name, path in state.binaries.items()}
        )
        self._servers: dict[str, Server] = {}
        self._names = itertools.count(1)

    @classmethod
    def up(
        cls,
        directory: Path,
        binaries: Binaries,
        *,
        extras: Sequence[str] = (),
        foreground: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> Self:
        """Start everything and wait until it is ready; if that fails or is interrupted, nothing is left running."""
        layout = Layout(root=directory.absolute())
        if unknown := [name for name in extras if name not in EXTRAS]:
            raise WrongRequestError(f"--with {unknown[0]}: the lab knows {' and '.join(EXTRAS)}")
        refuse_foreign_directory(layout.root)
        layout.root.mkdir(parents=True, exist_ok=True)
        ports = Ports(*loopback.free_ports(len(Ports.__struct_fields__)))
        state = LabState(release=binaries.release, ports=ports, binaries={k: str(v) for k, v in binaries.paths.items()})
        lab = cls(layout, state, Processes(layout.root, foreground=foreground))
        try:
            lab._remember(state)
            controlplane.write_identities(layout, ports)
            link_binaries(binaries, layout.bin)
            lab._start_control_plane(say)
            lab._start_extras(extras, say)
        except BaseException as error:
            lab.down(keep_logs=isinstance(error, LabError))  # the log says why; an interrupted start has nothing to say
            raise
        return lab

    @classmethod
    def open(cls, directory: Path) -> Self | None:
        """The lab in this directory, or None when there is none. Its servers may have died since."""
        layout = Layout(root=directory.absolute())
        try:
            state = msgspec.json.decode((layout.root / "lab.json").read_bytes(), type=LabState)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise LabError(f"{layout.root / 'lab.json'} is not what a lab writes ({error}); remove it") from error
        return cls(layout, state, Processes(layout.root, foreground=False))

    @property
    def kubeconfig(self) -> Path:
        return self.layout.kubeconfig

    @property
    def apiserver(self) -> str:
        return controlplane.apiserver_url(self.state.ports)

    @property
    def etcd(self) -> str:
        return controlplane.etcd_url(self.state.ports)

    def pids(self) -> dict[str, int | None]:
        """Each server that should run, with its pid; None for one that has died."""
        names = {name for wave in WAVES for name in wave}.union(self.processes.names())
        return {name: self.processes.pid(name) for name in sorted(names, key=_start_order)}

    def revive(self) -> list[str]:
        """Start again what has died (a reboot, a kill), with all it knew before; returns what that was."""
        dead = [name for name, pid in self.pids().items() if pid is None]
        for name in dead:
            self.start(name)
        return dead

    def down(self, *, keep_logs: bool = False) -> None:
        """End everything, then remove what the lab wrote."""
        self._stop_all()
        for name in OURS:
            path = self.dir / name
            if name == "logs" and keep_logs:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.dir.rmdir()  # stays when it holds files that are not the lab's

    # One server at a time

    def stop(self, component: str) -> None:
        """Ask one server to end and wait until it has."""
        self._server(component)
        self.processes.stop(component)

    def kill(self, component: str) -> None:
        """Kill one server with SIGKILL."""
        self._server(component)
        self.processes.kill(component)

    def start(self, component: str) -> None:
        """Start a server that was stopped or killed, with the same flags, and wait until it is ready."""
        server = self._server(component)
        if component == "kwok":
            # A new kwok is a new lease holder: without this it would wait for the old one's leases to run out.
            self.kubectl("delete", "leases", "--all", "-n", "kube-node-lease", "--ignore-not-found")
        self.processes.start(server)
        self.processes.wait_ready([server])
        if component == "kube-apiserver":
            self._renew_clients()

    def _renew_clients(self) -> None:
        """Its clients back off for up to half a minute after an outage; fresh ones are in step at once."""
        for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
            if self.pids().get(name) is not None:
                self.restart(name)

    def restart(self, component: str) -> None:
        self.stop(component)
        self.start(component)

    def scheduler_config(self, config: Path | None) -> None:
        """Restart kube-scheduler with another KubeSchedulerConfiguration; None is the default one again."""
        server = controlplane.scheduler(self.binaries, self.layout, self.state.ports.scheduler, config=config)
        self.processes.stop("kube-scheduler")
        self._servers["kube-scheduler"] = server
        self.start("kube-scheduler")

    def second_scheduler(self, config: Path, name: str = "second-scheduler") -> None:
        """Run another kube-scheduler beside the first; its configuration names the profiles it serves."""
        (port,) = loopback.free_ports(1)
        self._servers[name] = controlplane.scheduler(self.binaries, self.layout, port, name=name, config=config)
        self.start(name)

    # What one does with a cluster

    def kubectl(self, *args: str, input: str | None = None) -> str:  # noqa: A002 - as subprocess calls it
        """Run kubectl as the administrator and return what it printed; `input` is what `-f -` reads."""
        # Its discovery cache goes into the lab, not into ~/.kube.
        env = {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.layout.conf / "kubectl-cache")}
        return run([self.binaries["kubectl"], *args], env=env, stdin=input)

    def add_nodes(
        self,
        count: int,
        *,
        prefix: str = "node-",
        labels: Mapping[str, str] | None = None,
        cpu: str = "8",
        memory: str = "32Gi",
    ) -> list[str]:
        """Create nodes named prefix + number, and wait until they are Ready."""
        with self.api() as api:
            taken = {one["metadata"]["name"] for one in api.ask("GET", "api/v1/nodes")["items"]}
            free = (name for n in itertools.count() if (name := f"{prefix}{n}") not in taken)
            names = list(itertools.islice(free, count))
            for name in names:
                api.ask("POST", "api/v1/nodes", servers.node(name, labels or {}, cpu, memory))
            self._wait_usable(api, set(names))
        return names

    def api(self) -> ApiConnection:
        """The API server without kubectl."""
        return ApiConnection(self.layout, self.state.ports)

    def namespace(self, prefix: str = "test") -> str:
        """A fresh namespace."""
        name = f"{prefix}-{os.getpid()}-{next(self._names)}"
        with self.api() as api:
            api.ask("POST", "api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def clear(self, *namespaces: str, nodes: str = "") -> None:
        """Remove what a test made: its namespaces and the nodes with this label.

        Workloads first, then pods, then nodes: a pod whose node is gone has no kubelet to end it and stays a minute.
        """
        with self.api() as api:
            api.empty(*namespaces)
            for name in namespaces:
                api.ask("DELETE", f"api/v1/namespaces/{name}", absent_ok=True)
                # A controller that had not heard of it yet may have made another one; from now on none can.
                api.delete_all(f"api/v1/namespaces/{name}/pods")
            if nodes:
                api.delete_all(f"api/v1/nodes?{urlencode({'labelSelector': nodes})}")

    def etcd_compact(self) -> int:
        """Forget every revision but the newest, as etcd does in the long run; returns the revision kept."""
        status = msgspec.json.decode(self._etcdctl("endpoint", "status", "--write-out=json"))
        revision = int(status[0]["Status"]["header"]["revision"])
        self._etcdctl("compact", "--physical", str(revision))
        return revision

    # The real neighbours, when their programs are at hand

    @property
    def pd_server(self) -> Path | None:
        return self.binaries.optional("pd-server")

    @property
    def sabakan(self) -> Path | None:
        return self.binaries.optional("sabakan")

    def start_pd(self, members: int = 1) -> list[str]:
        """A fresh PD cluster; returns the members' client URLs. Its servers are named pd1, pd2 …"""
        if self.pd_server is None:
            raise LabError(servers.NO_PD)
        ports = loopback.free_ports(2 * members)
        first = 1 + sum(name.startswith("pd") for name in self._servers)
        self._launch(servers.pd_servers(self.pd_server, self.dir, ports, first=first))
        urls = [servers.pd_url(port) for port in ports[::2]]
        self._remember(msgspec.structs.replace(self.state, pd=(*self.state.pd, *urls)))
        return urls

    def start_sabakan(self) -> str:
        """A fresh, empty machine registry on the lab's etcd; returns its URL. One that ran before is ended."""
        if self.sabakan is None:
            raise LabError(servers.NO_SABAKAN)
        self.processes.stop("sabakan")
        self._etcdctl("del", "--prefix", servers.ETCD_PREFIX)
        ports = loopback.free_ports(servers.PORTS_NEEDED)
        pair = (self.layout.pki / "server.crt", self.layout.pki / "server.key")
        self._launch([servers.sabakan(self.sabakan, self.dir, ports, etcd=self.etcd, tls=pair)])
        url = servers.sabakan_url(ports[0])
        self._remember(msgspec.structs.replace(self.state, sabakan=url))
        return url

    # How it comes to life and ends

    def _start_control_plane(self, say: Callable[[str], None]) -> None:
        for wave in WAVES:
            say(f"starting {', '.join(wave)}")
            self._launch([self._server(name) for name in wave])

    def _launch(self, servers: list[Server]) -> None:
        for server in servers:
            self._servers[server.name] = server
            self.processes.start(server)
        self.processes.wait_ready(servers)

    def _start_extras(self, extras: Sequence[str], say: Callable[[str], None]) -> None:
        if "pd" in extras:
            say("starting pd-server" if self.pd_server else servers.NO_PD)
            if self.pd_server:
                self.start_pd()
        if "sabakan" in extras:
            say("starting sabakan" if self.sabakan else servers.NO_SABAKAN)
            if self.sabakan:
                self.start_sabakan()

    def _etcdctl(self, *args: str) -> str:
        return run([self.binaries["etcdctl"], *args], env={"ETCDCTL_ENDPOINTS": self.etcd})

    def _stop_all(self) -> None:
        """Latest first: what needs the API server before it, and it before its etcd."""
        for name in sorted(self.processes.names(), key=_start_order, reverse=True):
            self.processes.stop(name)

    def _server(self, component: str) -> Server:
        if component not in self._servers:
            args = (self.binaries, self.layout, self.state.ports)
            match component:
                case "etcd":
                    server = controlplane.etcd(*args)
                case "kube-apiserver":
                    server = controlplane.apiserver(*args)
                case "kube-controller-manager":
                    server = controlplane.controller_manager(*args)
                case "kube-scheduler":
                    server = controlplane.scheduler(self.binaries, self.layout, self.state.ports.scheduler)
                case "kwok":
                    server = servers.kwok(*args)
                case _:
                    noted = self.processes.server(component)
                    if noted is None:
                        raise WrongRequestError(f"the lab has no {component}; it has {', '.join(self.pids())}")
                    server = noted
            self._servers[component] = server
        return self._servers[component]

    def _wait_usable(self, api: ApiConnection, names: set[str]) -> None:
        """Until each node is Ready and the controller manager has removed its initial not-ready taint."""
        deadline = time.monotonic() + READY_WITHIN_S
        while missing := names - servers.usable(api.ask("GET", "api/v1/nodes")["items"]):
            if time.monotonic() > deadline:
                raise LabError(f"not Ready after {READY_WITHIN_S:.0f} s: {', '.join(sorted(missing))}")
            time.sleep(0.1)

    def _remember(self, state: LabState) -> None:
        self.state = state
        (self.dir / "lab.json").write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2))


def _start_order(name: str) -> tuple[int, str]:
    # Whatever else there is came after the control plane, and needs it.
    return (next((i for i, wave in enumerate(WAVES) if name in wave), len(WAVES)), name)
