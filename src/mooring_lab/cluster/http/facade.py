"""The sandbox over HTTP(S) on loopback: enough of the Kubernetes API for kubectl and for our own client.

    async with Facade(server, driver=WallDriver(timeline, speed=10)) as facade:
        facade.write_kubeconfig(path)

Get, list, watch, create, replace, patch, apply, delete, scale, eviction and binding, with selectors, paging and tables.
Not there: exec and logs, RBAC (every client that can reach loopback may do everything), schemas (`kubectl explain`),
dry runs of anything but a creation. It fails closed: what it does not know is 404, 405 or 406, in a sentence.
"""

import asyncio
import base64
import contextlib
import json
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import yaml
from aiohttp import web

from mooring.clients.ports import ExpiredError, Json, NotFoundError, PatchType, PortError, RefusedError, UnansweredError
from mooring.core.model.kinds import RESOURCES, Kind
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.apiserver.api import Lists
from mooring_lab.cluster.apiserver.labels import predicate
from mooring_lab.cluster.apiserver.server import HEARD, ApiServer
from mooring_lab.cluster.clock import WallDriver
from mooring_lab.cluster.http import discovery
from mooring_lab.cluster.http.applied import Applied
from mooring_lab.cluster.http.requests import (
    REVIEWS,
    at_home,
    body_of,
    dry_run,
    no_dry_run,
    status_of,
    stream_watch,
    wants_table,
    who,
)
from mooring_lab.cluster.http.tables import table
from mooring_lab.cluster.http.tls import Certificates

NO_SCHEMAS: Final = "the sandbox has no schemas to explain; ask a real cluster, or mooring lab up, with kubectl explain"
_MAX_BODY: Final = 8 * 2**20


class FacadeTarget(msgspec.Struct, frozen=True):
    """What a path names."""

    kind: Kind
    namespace: str | None
    name: str = ""
    subresource: str = ""


class Facade:
    def __init__(
        self,
        server: ApiServer,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        certificates: Certificates | None = None,
        driver: WallDriver | None = None,
    ) -> None:
        self._server = server
        self._host = host
        self._port = port
        self._certificates = certificates
        self._driver = driver
        self._applied = Applied(server)
        self._lists = Lists(server.store, server.watches)
        self._runner: web.AppRunner | None = None
        self._pump: asyncio.Task[None] | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        context = self._certificates.server_context() if self._certificates else None
        await web.TCPSite(self._runner, self._host, self._port, ssl_context=context).start()
        port = self._runner.addresses[0][1]
        self.url = f"{'https' if context else 'http'}://{self._host}:{port}"
        if self._driver is not None:
            self._pump = asyncio.create_task(self._driver.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pump is not None:
            self._pump.cancel()
        self._server.watches.cut()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._pump is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._pump

    def write_kubeconfig(self, path: Path) -> None:
        cluster: Json = {"server": self.url}
        if self._certificates is not None:
            cluster["certificate-authority-data"] = base64.b64encode(self._certificates.ca_pem).decode()
        name = "mooring-sandbox"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {"token": "sandbox"}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))

    # ── One request ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        heard: list[str] = []
        HEARD.set(heard)
        try:
            self._check_alive()
            response = await self._route(request)
        except PortError as error:
            response = _json(status_of(error), error_code(error))
        except (json.JSONDecodeError, msgspec.DecodeError, UnicodeDecodeError, yaml.YAMLError) as error:
            response = _json(status_of(RefusedError(f"the body cannot be read: {error}", 400)), 400)
        if not response.prepared:
            for words in heard:
                response.headers.add("Warning", f'299 - "{words.replace(chr(34), chr(39))}"')
        return response

    def _check_alive(self) -> None:
        """A controller that raised has stopped time: every request says so instead of waiting."""
        if self._pump is not None and self._pump.done() and not self._pump.cancelled():
            raise UnansweredError(f"the sandbox has stopped: {self._pump.exception()!r}")

    async def _route(self, request: web.Request) -> web.StreamResponse:
        path = [p for p in request.path.split("/") if p]
        found = self._about(request, path)
        if found is not None:
            return found
        if request.method == "POST" and path[-1:] and path[-1] in REVIEWS:
            return self._review(path[-1])
        target = target_of(path)
        match request.method:
            case "GET":
                return await self._get(request, target)
            case "POST":
                return await self._post(request, target)
            case "PUT":
                return _json(await self._put(request, target))
            case "PATCH":
                return _json(await self._patch(request, target))
            case "DELETE":
                return await self._delete(request, target)
            case _:
                raise RefusedError(f"{request.method} is not served", 405)

    def _review(self, name: str) -> web.Response:
        """All requests are allowed, whoever asks for what; with the time, as a real API server stamps it."""
        kind, status = REVIEWS[name]
        group = "authentication" if kind == "SelfSubjectReview" else "authorization"
        stamp = {"creationTimestamp": rfc3339(self._server.timeline.now())}
        return _json({"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "metadata": stamp, "status": status}, 201)

    def _about(self, request: web.Request, path: list[str]) -> web.Response | None:
        """Discovery and health; None: it is about an object."""
        match path:
            case ["healthz" | "readyz" | "livez", *_]:
                return web.Response(text="ok")
            case ["version"]:
                return _json(discovery.VERSION)
            case ["api"]:
                return _json(discovery.core_versions(request.host))
            case ["apis"]:
                return _json(discovery.group_list())
            case ["openapi", *_] if "explain" in request.headers.get("Kubectl-Command", ""):
                # As text and 406: of these alone kubectl prints what the server says while it reads OpenAPI.
                return web.Response(text=NO_SCHEMAS, status=406)
            case ["openapi", "v3"]:
                return _json(discovery.openapi_index())
            case ["openapi", "v3", "api", "v1"]:
                return _json(discovery.openapi_of("", "v1"))
            case ["openapi", "v3", "apis", group, version]:
                return _json(discovery.openapi_of(group, version))
            case ["apis", group]:
                return _found(discovery.group(group))
            case ["api", "v1"]:
                return _found(discovery.resource_list("", "v1"))
            case ["apis", group, version]:
                return _found(discovery.resource_list(group, version))
            case _:
                return None

    # ── Verbs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _get(self, request: web.Request, target: FacadeTarget) -> web.StreamResponse:
        server, query = self._server, request.query
        if target.name and target.subresource == "log":
            return web.Response(text="the sandbox runs no containers: there is nothing to read\n")
        if target.name and query.get("watch") not in {"1", "true"}:
            obj = await server.get(target.kind, target.namespace or "", target.name, subresource=target.subresource)
            return _json(self._shown(request, target.kind, [obj], str(server.store.revision), one=obj))
        fields = query.get("fieldSelector", "")
        if target.name:
            fields = ",".join(filter(None, (fields, f"metadata.name={target.name}")))
        keep = predicate(query.get("labelSelector", ""), fields)
        if query.get("watch") in {"1", "true"}:
            await server.arrive(f"watch {target.kind.value}")
            return await stream_watch(
                server, request, target.kind, target.namespace, keep, as_table=wants_table(request)
            )
        await server.arrive(f"list {target.kind.value}")
        if query.get("resourceVersionMatch") == "Exact" and query.get("resourceVersion") != str(server.store.revision):
            raise ExpiredError("The provided resource version is too old: the sandbox keeps the newest alone")
        limit = int(query.get("limit") or 0)
        objects, revision, token = self._lists.page(
            target.kind, limit, query.get("continue", ""), target.namespace, keep
        )
        return _json(self._shown(request, target.kind, objects, revision, token))

    def _shown(
        self,
        request: web.Request,
        kind: Kind,
        objects: list[Json],
        revision: str,
        token: str = "",
        one: Json | None = None,
    ) -> Json:
        if wants_table(request):
            shown = table(kind, objects, revision, self._server.timeline.now())
            if token:
                shown["metadata"]["continue"] = token
            return shown
        if one is not None:
            return one
        metadata = {"resourceVersion": revision} | ({"continue": token} if token else {})
        api_version = RESOURCES[kind].api_version
        return {"kind": f"{kind.value}List", "apiVersion": api_version, "metadata": metadata, "items": objects}

    async def _post(self, request: web.Request, target: FacadeTarget) -> web.StreamResponse:
        body, by = await body_of(request), who(request)
        if target.subresource == "eviction":
            options = body.get("deleteOptions") or {}
            uid, grace = (options.get("preconditions") or {}).get("uid", ""), options.get("gracePeriodSeconds")
            dry = bool(options.get("dryRun"))
            await self._server.evict(target.namespace or "", target.name, by=by, uid=uid, grace_s=grace, dry_run=dry)
            return _json(_success(), 201)
        if target.subresource == "binding":
            node, uid = (body.get("target") or {}).get("name", ""), (body.get("metadata") or {}).get("uid", "")
            await self._server.bind(target.namespace or "", target.name, node, by=by, uid=uid)
            return _json(_success(), 201)
        if target.subresource in {"exec", "attach", "portforward"}:
            raise RefusedError(f"the sandbox runs no containers: {target.subresource} is not served", 405)
        if target.name:
            raise RefusedError("POST goes to a collection", 405)
        obj = at_home(body, target.namespace, target.name)
        made = await self._server.create(target.kind, obj, by=by, dry_run=dry_run(request))
        return _json(self._shown(request, target.kind, [made], "", one=made), 201)

    async def _put(self, request: web.Request, target: FacadeTarget) -> Json:
        no_dry_run(request)
        obj = at_home(await body_of(request), target.namespace, target.name)
        return await self._server.replace(target.kind, obj, by=who(request), subresource=target.subresource)

    async def _patch(self, request: web.Request, target: FacadeTarget) -> Json:
        no_dry_run(request)
        try:
            how = PatchType(request.content_type)
        except ValueError as error:
            raise RefusedError(f"patch type {request.content_type} is not known", 415) from error
        body = await body_of(request)
        if how is PatchType.APPLY:
            body = at_home(body, target.namespace, target.name)
            manager, force = request.query.get("fieldManager", ""), request.query.get("force") == "true"
            return await self._applied.apply(target.kind, body, target.subresource, manager, who(request), force=force)
        return await self._server.patch(
            target.kind,
            target.namespace or "",
            target.name,
            body,
            patch_type=how,
            by=who(request),
            subresource=target.subresource,
        )

    async def _delete(self, request: web.Request, target: FacadeTarget) -> web.Response:
        no_dry_run(request)
        options = await body_of(request) if request.can_read_body else {}
        conditions = options.get("preconditions") or {}
        grace = options.get("gracePeriodSeconds", request.query.get("gracePeriodSeconds"))
        policy = options.get("propagationPolicy") or request.query.get("propagationPolicy", "")
        how: Json = {
            "by": who(request),
            "uid": conditions.get("uid", ""),
            "resource_version": conditions.get("resourceVersion", ""),
            "grace_s": None if grace is None else int(grace),
            "orphan": policy == "Orphan",
        }
        if target.name:
            await self._server.delete(target.kind, target.namespace or "", target.name, **how)
            return _json(_success())
        keep = predicate(request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))
        for obj in self._server.store.list(target.kind, target.namespace):
            if keep is None or keep(obj):
                metadata = obj["metadata"]
                await self._server.delete(target.kind, metadata.get("namespace", ""), metadata["name"], **how)
        return _json(_success())


def target_of(path: list[str]) -> FacadeTarget:
    """/api/v1/… or /apis/<group>/<version>/…; raises NotFound for what is not kept here."""
    if path[:2] == ["api", "v1"]:
        group, version, rest = "", "v1", path[2:]
    elif path[:1] == ["apis"] and len(path) > 3:
        group, version, rest = path[1], path[2], path[3:]
    else:
        raise NotFoundError("the server could not find the requested resource")
    namespace: str | None = None
    # /namespaces/x is the namespace itself, /namespaces/x/pods is in it.
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    kind = discovery.BY_PATH.get((group, version, rest[0])) if rest else None
    if kind is None or len(rest) > 3:
        raise NotFoundError(
            f"the sandbox has no {'/'.join(rest[:1]) or group}; kubectl api-resources lists what it has"
        )
    return FacadeTarget(kind, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else "")


def error_code(error: PortError) -> int:
    return int(status_of(error)["code"])


def _json(body: Any, code: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=code, content_type="application/json")


def _found(body: Json | None) -> web.Response:
    if body is None:
        raise NotFoundError("the server could not find the requested resource")
    return _json(body)


def _success() -> Json:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200}
