"""The real control plane on loopback: which flags each server is given, and why.

TLS and RBAC are on, so that what fails on a user's cluster for a missing permission fails here too. Everything else
is set for a quick start: no fsync, no leader election among one, no service account volumes in pods.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from mooring_lab.control import pki
from mooring_lab.control.binaries import Binaries
from mooring_lab.control.errors import WrongRequestError
from mooring_lab.control.processes import Server

#: Who the servers and the person are, for RBAC: user and groups.
IDENTITIES: Final = {
    "admin": ("mooring-lab-admin", ("system:masters",)),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    # It plays every kubelet and deletes pods like one; no role of Kubernetes' own allows all of that to one user.
    "kwok": ("mooring-lab-kwok", ("system:masters",)),
}

#: Who used which right: only of service accounts, and not of Kubernetes' own controllers.
AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}


class Ports(msgspec.Struct, frozen=True):
    """Where each server listens on 127.0.0.1."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    kwok: int


class Layout(msgspec.Struct, frozen=True):
    """What lies where under the lab's directory."""

    root: Path

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def conf(self) -> Path:
        return self.root / "conf"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def audit(self) -> Path:
        """What service accounts asked of the API server, one JSON object a line."""
        return self.root / "logs" / "audit.log"

    def kubeconfig_of(self, name: str) -> Path:
        return self.kubeconfig if name == "admin" else self.conf / f"{name}.kubeconfig"


def write_identities(at: Layout, ports: Ports) -> None:
    """Everything that proves who is who: the authority, the API server's certificate, a kubeconfig for each client."""
    authority = pki.Authority()
    authority.pair.write(at.pki, "ca")
    # 10.0.0.1 is the Service `kubernetes`: the first address of the service range.
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.0.0.1")
    authority.server("kube-apiserver", names).write(at.pki, "apiserver")
    authority.server("mooring-lab").write(at.pki, "server")
    private, public = pki.signing_keys()
    pki.write_private(at.pki / "service-account.key", private)
    (at.pki / "service-account.pub").write_bytes(public)
    for name, (user, groups) in IDENTITIES.items():
        pair = authority.client(user, groups)
        pair.write(at.pki, name)
        config = pki.kubeconfig(apiserver_url(ports), authority.pair.certificate, pair)
        pki.write_private(at.kubeconfig_of(name), config)


def apiserver_url(ports: Ports) -> str:
    return f"https://127.0.0.1:{ports.apiserver}"


def etcd_url(ports: Ports) -> str:
    return f"http://127.0.0.1:{ports.etcd}"


def etcd(binaries: Binaries, at: Layout, ports: Ports) -> Server:
    peer = f"http://127.0.0.1:{ports.etcd_peer}"
    return _server(
        "etcd",
        binaries,
        {
            "name": "lab",
            "data-dir": at.root / "data" / "etcd",
            "listen-client-urls": etcd_url(ports),
            "advertise-client-urls": etcd_url(ports),
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"lab={peer}",
            "unsafe-no-fsync": "true",
            "log-level": "warn",
        },
        f"{etcd_url(ports)}/health",
    )


def apiserver(binaries: Binaries, at: Layout, ports: Ports) -> Server:
    policy = at.conf / "audit.yaml"
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text(yaml.safe_dump(AUDIT))
    # Kubernetes' own Evictions, alpha since 1.37.
    minor = int(binaries.release.minor.partition(".")[2])
    alpha = {"feature-gates": "EvictionRequestAPI=true", "runtime-config": "lifecycle.k8s.io/v1alpha1=true"}
    return _server(
        "kube-apiserver",
        binaries,
        {
            "etcd-servers": etcd_url(ports),
            "bind-address": "127.0.0.1",
            "secure-port": ports.apiserver,
            "advertise-address": "127.0.0.1",
            # 10.0.0.1 is not routed to this server; without this it would keep an Endpoints object that no client can
            # use.
            "endpoint-reconciler-type": "none",
            "authorization-mode": "Node,RBAC",
            "client-ca-file": at.pki / "ca.crt",
            "tls-cert-file": at.pki / "apiserver.crt",
            "tls-private-key-file": at.pki / "apiserver.key",
            "cert-dir": at.pki,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": at.pki / "service-account.pub",
            "service-account-signing-key-file": at.pki / "service-account.key",
            "service-cluster-ip-range": "10.0.0.0/24",
            "audit-policy-file": policy,
            "audit-log-path": at.audit,
            # Pods need no token and must not wait for their namespace's default account.
            "disable-admission-plugins": "ServiceAccount",
            "enable-admission-plugins": "NodeRestriction",
            **(alpha if minor >= 37 else {}),
        },
        f"{apiserver_url(ports)}/readyz",
    )


def controller_manager(binaries: Binaries, at: Layout, ports: Ports) -> Server:
    config = at.kubeconfig_of("kube-controller-manager")
    return _server(
        "kube-controller-manager",
        binaries,
        {
            "kubeconfig": config,
            "authentication-kubeconfig": config,
            "authorization-kubeconfig": config,
            "bind-address": "127.0.0.1",
            "secure-port": ports.controller_manager,
            "cert-dir": at.pki,
            "leader-elect": "false",
            # Each controller as its own account: with the one user RBAC gives it, it may create next to nothing.
            "use-service-account-credentials": "true",
            "service-account-private-key-file": at.pki / "service-account.key",
            "root-ca-file": at.pki / "ca.crt",
            "kube-api-qps": 100,
            "kube-api-burst": 200,
        },
        f"https://127.0.0.1:{ports.controller_manager}/healthz",
    )


def scheduler(
    binaries: Binaries, at: Layout, port: int, *, name: str = "kube-scheduler", config: Path | None = None
) -> Server:
    """A kube-scheduler with this KubeSchedulerConfiguration (a second one has another name and port)."""
    kubeconfig = at.kubeconfig_of("kube-scheduler")
    written = at.conf / f"{name}.yaml"
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(yaml.safe_dump(scheduler_config(config, kubeconfig), sort_keys=False))
    server = _server(
        "kube-scheduler",
        binaries,
        {
            "config": written,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "cert-dir": at.pki,
        },
        f"https://127.0.0.1:{port}/healthz",
    )
    return msgspec.structs.replace(server, name=name)


def scheduler_config(given: Path | None, kubeconfig: Path) -> dict[str, Any]:
    """The user's configuration (or the default one), with what only the lab knows filled in where it is left open."""
    document: Any = {}
    if given is not None:
        try:
            document = yaml.safe_load(given.read_text())
        except (OSError, yaml.YAMLError) as error:
            raise WrongRequestError(f"{given}: cannot be read as a KubeSchedulerConfiguration: {error}") from error
        if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
            raise WrongRequestError(f"{given}: not a KubeSchedulerConfiguration (kind is missing or another)")
    base: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        # The default of 50 requests a second would be the slowest thing in the lab.
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 200, "burst": 400},
        "leaderElection": {"leaderElect": False},
    }
    merged: dict[str, Any] = base | document
    for key in ("clientConnection", "leaderElection"):
        merged[key] = base[key] | (document.get(key) or {})
    return merged


def _server(name: str, binaries: Binaries, flags: dict[str, Any], ready_url: str) -> Server:
    argv = (str(binaries[name]), *(f"--{flag}={value}" for flag, value in flags.items()))
    return Server(name=name, argv=argv, ready_url=ready_url)
