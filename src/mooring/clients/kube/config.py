"""Where the API server is and who we are, from a kubeconfig or from inside a pod.

The order is kubectl's: a path given by the user, then `$KUBECONFIG` (several files, merged: the first to name a thing
wins), then `~/.kube/config`, then the service account of the pod we run in. Everything is checked here, so that a typo
is one sentence that says what is wrong, where, and what would be right, and not a failed handshake later.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from mooring.clients.ports import PortError

SERVICE_ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_API_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class KubeconfigError(PortError, ValueError):
    """The kubeconfig, or what it points at, cannot be used as it is. The message says what would be right."""


class Pem(msgspec.Struct, frozen=True):
    """A certificate or key: its text, or the file that holds it (read again when it may have been renewed)."""

    data: str = ""
    file: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.data) or self.file is not None

    def read(self, what: str) -> str:
        if self.file is None:
            return self.data
        try:
            return self.file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise KubeconfigError(f"{what}: cannot read {self.file}: {reason(error)}") from error


class Exec(msgspec.Struct, frozen=True):
    """A credential plugin: a program that prints an ExecCredential."""

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    provide_cluster_info: bool = False
    install_hint: str = ""


class User(msgspec.Struct, frozen=True):
    """Who we are. The first that is set counts: exec, token file, token, password; a certificate may be beside."""

    token: str = ""
    token_file: Path | None = None
    certificate: Pem = Pem()
    key: Pem = Pem()
    username: str = ""
    password: str = ""
    exec: Exec | None = None
    impersonate: str = ""
    impersonate_uid: str = ""
    impersonate_groups: tuple[str, ...] = ()


class Connection(msgspec.Struct, frozen=True):
    """One API server and one identity, checked."""

    server: str
    user: User = User()
    ca: Pem = Pem()
    insecure: bool = False
    tls_server_name: str = ""
    proxy: str = ""
    namespace: str = "default"
    #: What a person should be told it came from: "context dev of /home/me/.kube/config", "the pod's service account".
    source: str = ""
    #: The name of the kubeconfig's context; "" in a pod.
    context: str = ""


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    context: str = "",
    env: Mapping[str, str] | None = None,
    service_account_dir: Path = SERVICE_ACCOUNT_DIR,
) -> Connection:
    """Find the connection as kubectl would. Raises ConfigError."""
    env = os.environ if env is None else env
    if path:
        return from_kubeconfig([Path(path).expanduser()], context=context, must_exist=True)
    if named := [Path(p).expanduser() for p in env.get("KUBECONFIG", "").split(os.pathsep) if p]:
        return from_kubeconfig(named, context=context)
    # A container's user may have neither HOME nor a line in passwd: then "~" stays as it is, and nothing is there.
    home = Path(os.path.expanduser(env.get("HOME") or "~")) / ".kube" / "config"  # noqa: PTH111
    if home.exists():
        return from_kubeconfig([home], context=context)
    if env.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(env, service_account_dir)
    raise KubeconfigError(
        f"no cluster to talk to: give --kubeconfig FILE, set KUBECONFIG, or create {home} (and this is not a pod: "
        "KUBERNETES_SERVICE_HOST is not set)"
    )


def in_cluster(env: Mapping[str, str], directory: Path = SERVICE_ACCOUNT_DIR) -> Connection:
    """The service account of the pod we run in; its token is rotated, so only the path is kept."""
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca = directory / "token", directory / "ca.crt"
    for file in (token, ca):
        if not file.is_file():
            raise KubeconfigError(
                f"in a pod, but {file} is missing: give the pod a service account "
                "(automountServiceAccountToken: true), or a --kubeconfig"
            )
    namespace = directory / "namespace"
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        user=User(token_file=token),
        ca=Pem(file=ca),
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        source="the pod's service account",
    )


def from_kubeconfig(paths: list[Path], *, context: str = "", must_exist: bool = False) -> Connection:
    """Merge the files (the first to name a thing wins) and resolve one context."""
    files = [(p, _read(p)) for p in paths if must_exist or p.exists()]
    if not files:
        raise KubeconfigError(f"none of the files of KUBECONFIG exists: {os.pathsep.join(map(str, paths))}")
    where = ", ".join(str(p) for p, _ in files)
    name = context or next((c for _, f in files if (c := f.current_context)), "")
    if not name:
        raise KubeconfigError(f"{where}: no current-context; set one with `kubectl config use-context NAME`")
    _, chosen = _entry(files, "contexts", name, where)
    cluster_file, cluster = _entry(files, "clusters", str(chosen.get("cluster", "")), where)
    user_file, user = _entry(files, "users", chosen["user"], where) if chosen.get("user") else (cluster_file, {})
    at = f"cluster {chosen['cluster']} of {cluster_file}"
    server = str(cluster.get("server", "")).rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise KubeconfigError(f"{at}: server is {server!r}; it should be a URL such as https://127.0.0.1:6443")
    ca, insecure = (
        _pem(cluster, "certificate-authority", cluster_file, at),
        bool(cluster.get("insecure-skip-tls-verify")),
    )
    if ca and insecure:
        raise KubeconfigError(f"{at}: both a certificate-authority and insecure-skip-tls-verify; keep one")
    return Connection(
        server=server,
        user=_user(user, user_file, f"user {chosen.get('user')} of {user_file}"),
        ca=ca,
        insecure=insecure,
        tls_server_name=str(cluster.get("tls-server-name", "")),
        proxy=str(cluster.get("proxy-url", "")),
        namespace=str(chosen.get("namespace") or "default"),
        source=f"context {name} of {where}",
        context=name,
    )


# ── The file ──────────────────────────────────────────────────────────────────────────────────────────────────────


class _Named(msgspec.Struct):
    name: str
    cluster: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    user: dict[str, Any] | None = None


class _File(msgspec.Struct, rename="kebab"):
    current_context: str = ""
    clusters: list[_Named] | None = None
    contexts: list[_Named] | None = None
    users: list[_Named] | None = None


def _read(path: Path) -> _File:
    try:
        raw = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (OSError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"kubeconfig {path}: cannot be read: {reason(error)}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark is not None else ""
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise KubeconfigError(f"kubeconfig {path}: not YAML: {line}{what}") from error
    try:
        return msgspec.convert(raw or {}, _File)
    except msgspec.ValidationError as error:
        raise KubeconfigError(f"kubeconfig {path}: {error}; see `kubectl config view` for the shape") from error


def _entry(files: list[tuple[Path, _File]], section: str, name: str, where: str) -> tuple[Path, dict[str, Any]]:
    known: list[str] = []
    for path, file in files:
        for item in getattr(file, section) or ():
            if item.name == name:
                return path, getattr(item, section[:-1]) or {}
            known.append(item.name)
    raise KubeconfigError(
        f"{where}: no {section[:-1]} named {name!r}; there is {', '.join(sorted(set(known))) or 'none'}"
    )


def _user(raw: dict[str, Any], file: Path, at: str) -> User:
    if "auth-provider" in raw:
        raise KubeconfigError(f"{at}: auth-provider was removed from Kubernetes; use an exec plugin or a token")
    if raw.get("as-user-extra"):
        raise KubeconfigError(f"{at}: as-user-extra is not supported; as, as-uid and as-groups are")
    certificate, key = _pem(raw, "client-certificate", file, at), _pem(raw, "client-key", file, at)
    if bool(certificate) != bool(key):
        raise KubeconfigError(f"{at}: client-certificate and client-key go together; only one of them is there")
    token_file = raw.get("tokenFile")
    return User(
        token=str(raw.get("token", "")),
        token_file=_path(token_file, file) if token_file else None,
        certificate=certificate,
        key=key,
        username=str(raw.get("username", "")),
        password=str(raw.get("password", "")),
        exec=_exec(raw["exec"], file, at) if raw.get("exec") else None,
        impersonate=str(raw.get("as", "")),
        impersonate_uid=str(raw.get("as-uid", "")),
        impersonate_groups=tuple(raw.get("as-groups") or ()),
    )


def _exec(raw: dict[str, Any], file: Path, at: str) -> Exec:
    version, command = str(raw.get("apiVersion", "")), str(raw.get("command", ""))
    if version not in EXEC_API_VERSIONS:
        raise KubeconfigError(
            f"{at}: exec.apiVersion is {version!r}; it should be one of {', '.join(EXEC_API_VERSIONS)}"
        )
    if not command:
        raise KubeconfigError(f"{at}: exec.command is missing; it names the program that prints the credential")
    if raw.get("interactiveMode") == "Always":
        raise KubeconfigError(
            f"{at}: the exec plugin asks for a terminal (interactiveMode: Always), and there is none here"
        )
    # A path with a slash is meant relative to the kubeconfig; a bare name is looked up in PATH.
    if "/" in command:
        command = str(_path(command, file))
    return Exec(
        command=command,
        api_version=version,
        args=tuple(str(a) for a in raw.get("args") or ()),
        env=tuple((str(e["name"]), str(e["value"])) for e in raw.get("env") or ()),
        provide_cluster_info=bool(raw.get("provideClusterInfo")),
        install_hint=str(raw.get("installHint", "")),
    )


def _pem(raw: dict[str, Any], key: str, file: Path, at: str) -> Pem:
    """`<key>-data` (base64) goes before `<key>` (a path relative to the kubeconfig)."""
    if encoded := raw.get(f"{key}-data"):
        try:
            return Pem(data=base64.b64decode(str(encoded), validate=True).decode())
        except (binascii.Error, UnicodeDecodeError) as error:
            raise KubeconfigError(f"{at}: {key}-data is not base64 of a PEM file") from error
    if path := raw.get(key):
        return Pem(file=_path(str(path), file))
    return Pem()


def _path(text: str, beside: Path) -> Path:
    path = Path(text).expanduser()
    return path if path.is_absolute() else beside.absolute().parent / path


def reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
