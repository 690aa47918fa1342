"""What a request says: its body in JSON, YAML or protobuf, where its object lives, who asks; reviews of oneself."""

from typing import Any, Final

import msgspec
import yaml
from aiohttp import web

from mooring.clients.ports import Json, RefusedError
from mooring.sandbox.http import protobuf

_EVERYTHING: Final = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
#: What is asked about oneself → what it is answered.
REVIEWS: Final[dict[str, Json]] = {
    "selfsubjectaccessreviews": {"allowed": True},
    "selfsubjectrulesreviews": {"resourceRules": [_EVERYTHING], "nonResourceRules": [], "incomplete": False},
    "selfsubjectreviews": {"userInfo": {"username": "sandbox"}},
}


async def body_of(request: web.Request) -> Any:
    raw = await request.read()
    if not raw:
        return {}
    if "yaml" in request.content_type:
        return yaml.safe_load(raw)
    if raw.startswith(protobuf.MAGIC):
        # `kubectl create namespace` and its like speak protobuf and nothing else.
        return protobuf.read(raw)
    if "json" not in request.content_type:
        raise RefusedError(f"the sandbox reads JSON, not {request.content_type}", 415)
    return msgspec.json.decode(raw)


def at_home(obj: Json, namespace: str | None, name: str) -> Json:
    """The path says where an object lives; a body that says otherwise is refused."""
    metadata = obj.get("metadata") or {}
    if namespace and metadata.get("namespace", namespace) != namespace:
        raise RefusedError("the namespace of the object does not match the namespace of the request", 400)
    if namespace:
        metadata = {**metadata, "namespace": namespace}
    if name and metadata.get("name", name) != name:
        raise RefusedError("the name of the object does not match the name on the URL", 400)
    return {**obj, "metadata": metadata | ({"name": name} if name else {})}


def who(request: web.Request) -> str:
    """The client's name from its User-Agent: kubectl, mooring."""
    return request.headers.get("User-Agent", "unknown").split("/", 1)[0]


def wants_table(request: web.Request) -> bool:
    return "as=Table" in request.headers.get("Accept", "")


def dry_run(request: web.Request) -> bool:
    return request.query.get("dryRun") == "All"


def no_dry_run(request: web.Request) -> None:
    if dry_run(request):
        raise RefusedError("the sandbox serves dry runs of creations only", 422)
