"""AdmissionReview (admission.k8s.io/v1), as far as it is read, and the answers to it.

Decoding is typed and skips what is not read (managedFields, containers); it is most of what an admission costs.
"""

import base64
from typing import Any, Final

import msgspec

from mooring.capabilities.mix.admission.affinity import Operation, PodRules
from mooring.clients.wire.fields import Meta
from mooring.core.model.cluster import Owner
from mooring.core.model.limits import KIB, is_dense, weight

API_VERSION: Final = "admission.k8s.io/v1"
LONGEST_UID: Final = 256
#: `managedFields`, which are not read, have an object per ten bytes or so.
BYTES_PER_OBJECT: Final = 20
#: A body below this is not weighed. A decoded request has at most so many bytes: annotations alone may have 256 KiB.
SMALL: Final = 16 * KIB
HEAVIEST: Final = 1024 * KIB


class BadReviewError(ValueError):
    """The body is not an AdmissionReview that can be answered. The message is written for people."""


class _Wire(msgspec.Struct, frozen=True, rename="camel"):
    pass


class PodObject(_Wire, frozen=True):
    metadata: Meta = Meta()
    spec: PodRules = PodRules()

    @property
    def controller(self) -> Owner | None:
        for ref in self.metadata.owner_references or ():
            if ref.controller:
                return Owner(ref.kind, ref.name, ref.uid, ref.api_version)
        return None


class PodRequest(_Wire, frozen=True):
    uid: str
    operation: str = "CREATE"
    namespace: str = ""
    name: str = ""
    sub_resource: str = ""
    dry_run: bool | None = None
    object: PodObject | None = None


class _Template(_Wire, frozen=True):
    metadata: Meta | None = None
    spec: PodRules | None = None


class _Strategy(_Wire, frozen=True):
    type: str = ""


class _WorkloadSpec(_Wire, frozen=True):
    replicas: int | None = None
    template: _Template | None = None
    strategy: _Strategy | None = None


class WorkloadObject(_Wire, frozen=True):
    kind: str = ""
    metadata: Meta = Meta()
    spec: _WorkloadSpec | None = None


class _Kind(_Wire, frozen=True):
    group: str = ""
    kind: str = ""


class WorkloadRequest(_Wire, frozen=True):
    uid: str
    kind: _Kind = _Kind()
    operation: str = "CREATE"
    namespace: str = ""
    name: str = ""
    sub_resource: str = ""
    object: WorkloadObject | None = None
    old_object: WorkloadObject | None = None


class _Preconditions(_Wire, frozen=True):
    uid: str = ""


class _DeleteOptions(_Wire, frozen=True):
    preconditions: _Preconditions | None = None
    dry_run: tuple[str, ...] | None = None


class _EvictionObject(_Wire, frozen=True):
    delete_options: _DeleteOptions | None = None


class _User(_Wire, frozen=True):
    username: str = ""


class EvictionRequest(_Wire, frozen=True):
    """What is asked of `pods/eviction`: the pod is named, and is not in it."""

    uid: str
    namespace: str = ""
    name: str = ""
    dry_run: bool | None = None
    user_info: _User = _User()
    object: _EvictionObject | None = None

    @property
    def options(self) -> _DeleteOptions:
        return (self.object.delete_options if self.object is not None else None) or _DeleteOptions()

    @property
    def pod_uid(self) -> str:
        """Only this very pod is meant; "": whichever has the name."""
        preconditions = self.options.preconditions
        return preconditions.uid if preconditions is not None else ""

    @property
    def is_dry(self) -> bool:
        return bool(self.dry_run or self.options.dry_run)


class _EvictionReview(_Wire, frozen=True):
    api_version: str
    kind: str
    request: EvictionRequest


class _PodReview(_Wire, frozen=True):
    api_version: str
    kind: str
    request: PodRequest


class _WorkloadReview(_Wire, frozen=True):
    api_version: str
    kind: str
    request: WorkloadRequest


_pods: Final = msgspec.json.Decoder(_PodReview)
_workloads: Final = msgspec.json.Decoder(_WorkloadReview)
_evictions: Final = msgspec.json.Decoder(_EvictionReview)
_encode: Final = msgspec.json.Encoder().encode


def pod_request(body: bytes) -> PodRequest:
    """Raises BadReviewError."""
    request: PodRequest = _request(_pods, body)
    return request


def workload_request(body: bytes) -> WorkloadRequest:
    """Raises BadReviewError."""
    request: WorkloadRequest = _request(_workloads, body)
    return request


def eviction_request(body: bytes) -> EvictionRequest:
    """Raises BadReviewError."""
    request: EvictionRequest = _request(_evictions, body)
    return request


def _request(decoder: "msgspec.json.Decoder[Any]", body: bytes) -> Any:
    if is_dense(body, bytes_per_object=BYTES_PER_OBJECT):
        raise BadReviewError("the request holds more values than any object of Kubernetes of its size")
    try:
        review = decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadReviewError(f"not an AdmissionReview of {API_VERSION} with a request: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadReviewError(f"not JSON: {error}") from None
    # Only one is decoded at a time, but many may wait for the watch or for the leader.
    if len(body) > SMALL and weight(review, HEAVIEST) > HEAVIEST:
        raise BadReviewError(f"the metadata and rules in the request take more than {HEAVIEST // KIB} KiB")
    if review.api_version != API_VERSION or review.kind != "AdmissionReview":
        said = f"{review.api_version[:60]} {review.kind[:60]}"
        raise BadReviewError(f"{said} is not understood; must be an AdmissionReview of {API_VERSION}")
    if not 0 < len(review.request.uid) <= LONGEST_UID:
        raise BadReviewError("the request has no uid, or a long one, so no answer could be matched to it")
    return review.request


def allowed(uid: str, operations: list[Operation] | None = None, warnings: tuple[str, ...] = ()) -> bytes:
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(_encode(operations)).decode()
    if warnings:
        response["warnings"] = [text[:256] for text in warnings]
    return _answer(response)


def denied(uid: str, message: str, code: int = 422) -> bytes:
    status = {"code": code, "reason": "Invalid", "message": message}
    return _answer({"uid": uid, "allowed": False, "status": status})


def later(uid: str, message: str) -> bytes:
    """Refused for now. Without `retryAfterSeconds`: with it client-go tries again in silence, and nobody reads why."""
    status = {"code": 429, "reason": "TooManyRequests", "message": message}
    return _answer({"uid": uid, "allowed": False, "status": status})


def _answer(response: dict[str, Any]) -> bytes:
    return _encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
