"""The three metadata services, as their documentation describes them, and an API server that takes one patch.

AWS: docs "Use the Instance Metadata Service", "Spot Instance interruption notices", "EC2 instance rebalance
recommendations". Google: "About VM metadata", "Get live migration notices", "Handle preemption". Azure: "Scheduled
Events for Linux VMs" (2020-07-01) and "Instance Metadata Service".
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mooring.agent.clouds import Metadata

#: (method, path, headers) → status, headers, body. None: the connection is closed without an answer.
Answer = tuple[int, dict[str, str], str] | None
Service = Callable[[str, str, Any], Answer]
HTML = (200, {"Content-Type": "text/html"}, "<html><body>Sign in to the network</body></html>")
MISSING = (404, {"Content-Type": "text/html"}, "<html><title>404 - Not Found</title></html>")


class Aws:
    """Version 2 only: 401 without a token, which lasts as long as its caller asked for."""

    def __init__(self) -> None:
        self.spot: Answer = MISSING
        self.rebalance: Answer = MISSING
        self.tokens = 0
        self.valid = ""

    def __call__(self, method: str, path: str, headers: Any) -> Answer:
        if path == "/latest/api/token":
            ttl = headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            if method != "PUT" or not ttl.isdecimal() or not 1 <= int(ttl) <= 21600:
                return 400, {}, "Bad Request"
            self.tokens += 1
            self.valid = f"AQAEAL{self.tokens}=="
            return 200, {}, self.valid
        if not self.valid or headers.get("X-aws-ec2-metadata-token") != self.valid:
            return 401, {}, "Unauthorized"
        found = {
            "/latest/meta-data/spot/instance-action": self.spot,
            "/latest/meta-data/events/recommendations/rebalance": self.rebalance,
        }
        return found.get(path, MISSING)


class Google:
    def __init__(self) -> None:
        self.preempted = "FALSE"
        self.maintenance = "NONE"

    def __call__(self, method: str, path: str, headers: Any) -> Answer:
        if headers.get("Metadata-Flavor") != "Google":
            return 403, {}, "Missing Metadata-Flavor:Google header."
        words = {"preempted": self.preempted, "maintenance-event": self.maintenance}
        word = words.get(path.removeprefix("/computeMetadata/v1/instance/"))
        return MISSING if word is None else (200, {"Metadata-Flavor": "Google"}, word)


class Azure:
    def __init__(self) -> None:
        self.name = "aks-spot-12345-vmss_0"
        self.events: list[Any] = []
        self.body: Answer = None

    def __call__(self, method: str, path: str, headers: Any) -> Answer:
        if headers.get("Metadata") != "true":
            return 400, {}, '{"error": "Bad request. Required metadata header not specified"}'
        if path.startswith("/metadata/instance/compute/name?api-version="):
            return 200, {}, self.name
        if path != "/metadata/scheduledevents?api-version=2020-07-01":
            return MISSING
        return self.body or (200, {}, json.dumps({"DocumentIncarnation": 1, "Events": self.events}))


def azure_event(**other: Any) -> dict[str, Any]:
    """As in the documentation's example."""
    return {
        "EventId": "f020ba2e-3bc0-4c40-a10b-86575a9eabd5",
        "EventStatus": "Scheduled",
        "EventType": "Preempt",
        "ResourceType": "VirtualMachine",
        "Resources": ["aks-spot-12345-vmss_0"],
        "NotBefore": "Fri, 15 Jan 2027 08:00:30 GMT",
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
        **other,
    }


@contextmanager
def served(service: Service, timeout_s: float = 5.0) -> Iterator[Metadata]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = service(self.command, self.path, self.headers)
            if found is None:
                return
            status, headers, body = found
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_PUT = answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Metadata("127.0.0.1", server.server_port, timeout_s)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class ServedNode:
    """The Node as the API server would keep it."""

    def __init__(self, provider: str = "aws:///eu-central-1a/i-0abc", annotation: str | None = None) -> None:
        self.provider = provider
        self.annotation = annotation
        self.patches: list[str | None] = []
        self.error: Exception | None = None

    def patch(self, annotation: str | None) -> dict[str, Any]:
        self.patches.append(annotation)
        if self.error is not None:
            raise self.error
        if annotation is not None:
            self.annotation = annotation
        notes = {} if self.annotation is None else {"mooring.dev/agent": self.annotation}
        return {"metadata": {"annotations": notes}, "spec": {"providerID": self.provider}}

    @property
    def notices(self) -> dict[str, Any]:
        return self.read["notices"]

    @property
    def read(self) -> dict[str, Any]:
        return json.loads(self.annotation or "{}")
