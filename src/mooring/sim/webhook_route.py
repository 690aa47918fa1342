"""The sandbox's way to our webhook: the Service's address, answered in process by a replica that is alive.

A Service picks any replica; a follower passes the request on to the leader. Here the leader is asked at once, which is
the same answer. Without a live replica the call fails, as on a real cluster, and the failurePolicy decides. So does a
call whose replica dies before it has answered: its connection breaks.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from mooring.clients.ports import Json
from mooring.process.admission.configurations import OWNED_PODS, SPEAKING_WORKLOADS, WebhookAddress
from mooring.process.replica import Replica
from mooring.sandbox.apiserver.admission import Admission, Webhook

_OWNED = ("pod-template-hash", "statefulset.kubernetes.io/pod-name")


def serve(admission: Admission, address: WebhookAddress, replicas: Callable[[], Sequence[Replica]]) -> None:
    """Answer the calls that our webhook configurations make the sandbox's API server send."""

    def answer(path: str) -> Webhook:
        async def called(review: Json) -> Json:
            alive = replicas()
            if not alive:
                raise ConnectionRefusedError("no replica is alive")
            one = next((replica for replica in alive if replica.elector.may_write()), alive[0])
            body = msgspec.json.encode(review)
            reviewer = one.webhook.reviewer
            try:
                said = await (reviewer.pods(body) if path == "/admit/pods" else reviewer.workloads(body))
            except asyncio.CancelledError:
                caller = asyncio.current_task()
                if caller is not None and caller.cancelling():
                    raise
                # The end is the replica's, not the caller's, who goes on.
                raise ConnectionResetError("the replica died before it answered") from None
            found: Json = msgspec.json.decode(said)
            return found

        return called

    for path in ("/admit/pods", "/admit/workloads"):
        url = address.url.rstrip("/") + path if address.url else _service_url(address, path)
        admission.serve(url, answer(path))
    admission.condition(OWNED_PODS, lambda request: any(key in _labels(request["object"]) for key in _OWNED))
    admission.condition(
        SPEAKING_WORKLOADS,
        lambda request: any(_speaks(request[side]) for side in ("object", "oldObject") if request.get(side)),
    )


def _service_url(address: WebhookAddress, path: str) -> str:
    return f"https://{address.service}.{address.namespace}.svc:443{path}"


def _labels(found: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = found["metadata"].get("labels") or {}
    return labels


def _speaks(found: dict[str, Any]) -> bool:
    metadata = found["metadata"]
    return any(key.startswith("vacant.io/") for part in ("labels", "annotations") for key in (metadata.get(part) or {}))
