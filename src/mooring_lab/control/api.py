"""The lab's API server, asked without kubectl: to start a program that learns what the server serves costs twenty times
as much."""

import functools
import http.client
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from mooring_lab.control.controlplane import Layout, Ports
from mooring_lab.control.errors import LabError

#: What runs pods, the owners before the owned, and then the pods. A TidbCluster does not wait for the end of its
#: namespace: if the API server is killed meanwhile, the namespace may go and the TidbCluster stay.
WORKLOADS: Final = (
    "apis/pingcap.com/v1alpha1/tidbclusters",
    "apis/apps/v1/deployments",
    "apis/apps/v1/statefulsets",
    "apis/apps/v1/daemonsets",
    "apis/apps/v1/replicasets",
    "apis/batch/v1/jobs",
    "api/v1/pods",
)
#: Without a grace period; what they own is collected afterwards.
AT_ONCE: Final = {
    "kind": "DeleteOptions",
    "apiVersion": "v1",
    "gracePeriodSeconds": 0,
    "propagationPolicy": "Background",
}


class ApiConnection:
    """As the administrator; for one thread."""

    def __init__(self, at: Layout, ports: Ports) -> None:
        trust = _trust(at, (at.pki / "ca.crt").stat().st_mtime_ns)
        self._connection = http.client.HTTPSConnection("127.0.0.1", ports.apiserver, timeout=60, context=trust)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, absent_ok: bool = False) -> Any:
        """What the API server answers; anything but success is an error with its words."""
        data = b"" if body is None else msgspec.json.encode(body)
        try:
            self._connection.request(method, f"/{path}", data, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise LabError(f"{method} {path}: {error!r}") from error
        if absent_ok and answer.status == http.HTTPStatus.NOT_FOUND:
            return None
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise LabError(f"{method} {path}: {answer.status} {said.decode(errors='replace')}")
        return msgspec.json.decode(said)

    def delete_all(self, path: str) -> None:
        """All of a kind, in a namespace if it is in the path; a kind that is not served has none."""
        self.ask("DELETE", path, AT_ONCE, absent_ok=True)

    def empty(self, *namespaces: str) -> None:
        """No workload and no pod in them."""
        for path in WORKLOADS:
            version, _, plural = path.rpartition("/")
            for name in namespaces:
                self.delete_all(f"{version}/namespaces/{name}/{plural}")


@functools.lru_cache(maxsize=4)
def _trust(at: Layout, _written_at: int) -> ssl.SSLContext:
    """Read again when another lab was started in the same directory."""
    trust = ssl.create_default_context(cafile=str(at.pki / "ca.crt"))
    trust.load_cert_chain(at.pki / "admin.crt", at.pki / "admin.key")
    return trust
