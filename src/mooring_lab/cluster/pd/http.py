"""The sandbox's PD over HTTP, in the words and with the irregular status codes of the real one.

Answers what our client and a person with curl or pd-ctl's habits would ask; anything else is PD's own plain 404. Fails
as PD does: no connection while it restarts, 500 "redirect failed" while there is no leader.
"""

import asyncio
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from aiohttp import web

from mooring.core.model.tidb import Region
from mooring_lab.cluster.pd import printed, requests
from mooring_lab.cluster.pd.driver import SandboxPd
from mooring_lab.cluster.pd.requests import Said
from mooring_lab.cluster.pd.schedulers import EVICT_LEADER

API = "/pd/api/v1"
MAINTENANCE = "/pd/api/v2/maintenance"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NO_OPERATOR = Said(500, "[PD:operator:ErrOperatorNotFound]operator not found")
NO_SCHEDULER = Said(404, "[PD:scheduler:ErrSchedulerNotFound]scheduler not found")
APPLIED = Said(200, "The scheduler has been applied to the store.")


def pd_app(pd: SandboxPd) -> web.Application:
    """An aiohttp application to serve on loopback; something must drive the timeline (a WallDriver)."""
    app = web.Application(middlewares=[_gate(pd)])
    serve = _Pd(pd)
    app.add_routes(
        [
            web.get(API + "/status", serve.status),
            web.get(API + "/version", serve.version),
            web.get(API + "/ping", serve.ping),
            web.get(API + "/members", serve.members),
            web.get(API + "/health", serve.health),
            web.get(API + "/leader", serve.leader),
            web.post(API + "/leader/transfer/{name}", serve.transfer),
            web.get(API + "/cluster", serve.cluster),
            web.get(API + "/cluster/status", serve.cluster_status),
            web.get(API + "/stores", serve.stores),
            web.get(API + "/store/{id}", serve.store),
            web.delete(API + "/store/{id}", serve.take_offline),
            web.get(API + "/regions", serve.regions),
            web.get(API + "/regions/count", serve.region_count),
            web.get(API + "/regions/key", serve.scan),
            web.get(API + "/regions/check/{kind}", serve.checked),
            web.get(API + "/regions/store/{id}", serve.regions_of_store),
            web.get(API + "/region/id/{id}", serve.region),
            web.get(API + "/stats/region", serve.region_stats),
            web.get(API + "/config/schedule", serve.config),
            web.get(API + "/config/replicate", serve.replicate),
            web.get(API + "/config/rules", serve.rules),
            web.get(API + "/config/rule_groups", serve.rule_groups),
            web.get(API + "/config/region-label/rules", serve.region_labels),
            web.post(API + "/config", serve.set_config),
            web.get(API + "/schedulers", serve.schedulers),
            web.post(API + "/schedulers", serve.add_scheduler),
            web.post(API + "/schedulers/{name}", serve.pause),
            web.delete(API + "/schedulers/{name}", serve.remove_scheduler),
            web.get(f"{API}/scheduler-config/{EVICT_LEADER}/list", serve.evict_list),
            web.post(f"{API}/scheduler-config/{EVICT_LEADER}/config", serve.evict_config),
            web.delete(f"{API}/scheduler-config/{EVICT_LEADER}/delete/{{id}}", serve.evict_delete),
            web.get(MAINTENANCE, serve.lock),
            web.put(MAINTENANCE + "/{type}/{id}", serve.hold_lock),
            web.delete(MAINTENANCE + "/{type}/{id}", serve.release_lock),
            web.get(API + "/operators", serve.operators),
            web.get(API + "/operators/{id}", serve.operator),
            web.post(API + "/operators", serve.add_operator),
            web.delete(API + "/operators/{id}", serve.cancel_operator),
        ]
    )
    return app


def _gate(pd: SandboxPd) -> Any:
    """Latency, and the errors while PD is away."""

    @web.middleware
    async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
        if pd.network.latency_s:
            await asyncio.sleep(pd.network.latency_s)
        local = request.path.endswith(("/status", "/health", "/version", "/ping"))
        if "redirect" in pd.away and not local:
            return _say(Said(500, "[PD:apiutil:ErrRedirect]redirect failed"))
        if pd.away and request.transport is not None:
            request.transport.close()
            return web.Response()
        if request.method != "GET" and pd.network.take_lost_request():
            return _cut(request)
        try:
            response = await handler(request)
        except web.HTTPNotFound:
            return web.Response(status=404, text="404 page not found\n")
        except msgspec.MsgspecError as e:
            return _json({"code": "input", "msg": str(e), "data": {"Offset": 0}}, 400)
        response.headers["Date"] = formatdate(pd.timeline.now(), usegmt=True)
        return _cut(request) if request.method != "GET" and pd.network.take_lost_answer() else response

    return gate


def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.close()
    return web.Response()


def _json(value: Any, status: int = 200, *, indent: bool = True) -> web.Response:
    body = msgspec.json.encode(value)
    if indent:
        body = msgspec.json.format(body, indent=2) + b"\n"
    return web.Response(status=status, body=body, content_type="application/json")


def _say(said: Said) -> web.Response:
    return _json(said.words, said.status)


class _Pd:
    def __init__(self, pd: SandboxPd) -> None:
        self._pd = pd
        self._server = pd.server

    # ── Itself ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def status(self, _: web.Request) -> web.Response:
        version = self._pd.settings.version
        started = self._pd.start_timestamp
        return _json({"build_ts": "None", "version": version, "git_hash": "sandbox", "start_timestamp": started})

    async def version(self, _: web.Request) -> web.Response:
        return _json({"version": self._pd.settings.version, "build_time": "", "hash": "", "branch": ""})

    async def ping(self, _: web.Request) -> web.Response:
        return web.Response()

    def _members(self) -> list[dict[str, Any]]:
        known = self._pd.known_members()
        return [{"name": m.name, "member_id": m.member_id, "client_urls": list(m.client_urls)} for m in known]

    async def members(self, _: web.Request) -> web.Response:
        leader = next(m for m in self._members() if m["name"] == self._pd.leader)
        header = {"cluster_id": self._pd.cluster_id}
        return _json({"header": header, "members": self._members(), "leader": leader, "etcd_leader": leader})

    async def health(self, _: web.Request) -> web.Response:
        return _json([m | {"health": True} for m in self._members()])

    async def leader(self, _: web.Request) -> web.Response:
        return _json(next(m for m in self._members() if m["name"] == self._pd.leader))

    async def transfer(self, request: web.Request) -> web.Response:
        if not self._pd.hand_over(request.match_info["name"]):
            return _say(Said(500, "no valid pd to transfer etcd leader"))
        return _say(Said(200, "The transfer command is submitted."))

    async def cluster(self, _: web.Request) -> web.Response:
        return _json({"id": self._pd.cluster_id, "max_peer_count": self._pd.settings.replicas})

    async def cluster_status(self, _: web.Request) -> web.Response:
        began = printed.go_time(self._pd.began_at)
        initialized = bool(self._server.cache)
        return _json({"raft_bootstrap_time": began, "is_initialized": initialized, "replication_status": ""})

    async def config(self, _: web.Request) -> web.Response:
        return _json(requests.schedule_config(self._server))

    async def replicate(self, _: web.Request) -> web.Response:
        return _json(self._server.placement.replicate())

    async def rules(self, _: web.Request) -> web.Response:
        return _json(self._server.placement.rules)

    async def rule_groups(self, _: web.Request) -> web.Response:
        return _json([])

    async def region_labels(self, _: web.Request) -> web.Response:
        return _json(self._server.placement.region_labels)

    async def set_config(self, request: web.Request) -> web.Response:
        for key, value in msgspec.json.decode(await request.read(), type=dict[str, Any]).items():
            match key.removeprefix("schedule."):
                case "leader-schedule-limit":
                    self._server.limits["leader"] = int(value)
                case "halt-scheduling":
                    self._server.placement.halted = value in (True, "true")
                case _:
                    return _say(Said(400, f"config item {key} not found"))
            self._server.kick()
        return _say(Said(200, "The config is updated."))

    # ── Stores and regions ────────────────────────────────────────────────────────────────────────────────────────

    async def stores(self, _: web.Request) -> web.Response:
        stores = [printed.store(s, self._pd.settings.version) for s in self._server.stores()]
        return _json({"count": len(stores), "stores": stores})

    async def store(self, request: web.Request) -> web.Response:
        store = self._server.tikv.stores.get(_number(request))
        if store is None:
            return _say(Said(404, f"[PD:core:ErrStoreNotFound]store {_number(request)} not found"))
        return _json(printed.store(self._server.store(store), self._pd.settings.version))

    async def take_offline(self, request: web.Request) -> web.Response:
        return _say(requests.take_offline(self._server, _number(request)))

    async def regions(self, _: web.Request) -> web.Response:
        found = [printed.region(r) for r in self._server.cache.values()]
        return _json({"count": len(found), "regions": found}, indent=False)

    async def checked(self, request: web.Request) -> web.Response:
        if request.match_info["kind"] not in requests.CHECKS:
            raise web.HTTPNotFound
        found = [printed.region(r) for r in requests.checked(self._server, request.match_info["kind"])]
        return _json({"count": len(found), "regions": found}, indent=False)

    async def regions_of_store(self, request: web.Request) -> web.Response:
        held = (self._server.cache[r] for r in self._server.held_by(_number(request)))
        found = [printed.region(r) for r in held]
        return _json({"count": len(found), "regions": found}, indent=False)

    async def scan(self, request: web.Request) -> web.Response:
        raw = unquote_to_bytes(_raw(request.rel_url.raw_query_string, "key"))
        found = requests.regions_from(self._server, raw.hex().upper(), min(int(request.query.get("limit", 16)), 10240))
        return _json({"count": len(found), "regions": [printed.region(r) for r in found]}, indent=False)

    async def region(self, request: web.Request) -> web.Response:
        return _json(printed.region(self._server.cache.get(_number(request), Region(0))), indent=False)

    async def region_count(self, _: web.Request) -> web.Response:
        return _json({"count": len(self._server.cache), "regions": None})

    async def region_stats(self, _: web.Request) -> web.Response:
        leaders = {str(s): n for s, n in sorted(self._server.heard.leader_counts.items())}
        peers = {str(s): n for s, n in sorted(self._server.heard.region_counts.items())}
        return _json({"count": len(self._server.cache), "store_leader_count": leaders, "store_peer_count": peers})

    # ── Schedulers ────────────────────────────────────────────────────────────────────────────────────────────────

    async def schedulers(self, request: web.Request) -> web.Response:
        names = self._server.scheduler_names()
        match request.query.get("status"):
            case "paused" if "timestamp" in request.query:
                paused = [(n, self._server.paused[n]) for n in names if self._server.is_paused(n)]
                return _json(
                    [
                        {"name": n, "paused_at": printed.go_time(a), "resume_at": printed.go_time(b)}
                        for n, (a, b) in paused
                    ]
                )
            case "paused":
                return _json([n for n in names if self._server.is_paused(n)])
            case "disabled":
                return _json([])
        return _json(list(names))

    async def add_scheduler(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read(), type=dict[str, Any])
        name, store = body.get("name"), body.get("store_id")
        if not name:
            return _say(Said(400, "missing scheduler name"))
        if name != EVICT_LEADER:
            return _say(Said(400, "unknown scheduler"))
        if not isinstance(store, int):
            return _say(Said(400, "missing store id"))
        return _say(requests.add_evict_leader(self._server, store))

    async def pause(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read(), type=dict[str, Any])
        return _say(requests.pause(self._server, request.match_info["name"], int(body.get("delay", 0))))

    async def remove_scheduler(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name == EVICT_LEADER:
            if self._server.evict_list() is None:
                return _say(NO_SCHEDULER)
            for store in list(self._server.evicting):
                requests.remove_evict_leader(self._server, store)
            return _say(Said(200, "The scheduler is removed."))
        store_id = name.removeprefix(EVICT_LEADER + "-")
        if not store_id.isdigit():
            return _say(NO_SCHEDULER)
        listed = self._server.evict_list() or ()
        removed = int(store_id) in listed and requests.remove_evict_leader(self._server, int(store_id))
        return _json(None, 200 if removed else 404)

    async def evict_list(self, _: web.Request) -> web.Response:
        listed = self._server.evict_list()
        if listed is None:
            raise web.HTTPNotFound
        ranges = {str(s): [{"start-key": "", "end-key": ""}] for s in listed}
        return _json({"store-id-ranges": ranges, "batch": self._server.evict_batch})

    async def evict_config(self, request: web.Request) -> web.Response:
        if self._server.evict_list() is None:
            raise web.HTTPNotFound
        body = msgspec.json.decode(await request.read(), type=dict[str, Any])
        batch = body.get("batch")
        if isinstance(batch, int):
            if not 1 <= batch <= 10:
                return _say(Said(400, "batch is invalid, it should be in [1, 10]"))
            self._server.evict_batch = batch
        if isinstance(body.get("store_id"), int):
            said = requests.add_evict_leader(self._server, body["store_id"])
            if said.status != 200:
                return _say(Said(500, said.words.strip('"\n')))
        return _say(APPLIED)

    async def evict_delete(self, request: web.Request) -> web.Response:
        if self._server.evict_list() is None:
            raise web.HTTPNotFound
        if not requests.remove_evict_leader(self._server, _number(request)):
            return _say(Said(404, "[PD:scheduler:ErrScheduleConfigNotExist]the config does not exist"))
        return _json(None) if self._server.evicting else _say(Said(200, "The last store has been deleted"))

    # ── The maintenance lock ──────────────────────────────────────────────────────────────────────────────────────

    def _task(self) -> dict[str, Any]:
        kind, name, since, words = self._server.lock or ("", "", 0.0, "")
        return {"type": kind, "id": name, "start_timestamp": int(since), "description": words}

    async def lock(self, _: web.Request) -> web.Response:
        if not self._pd.settings.lockable:
            raise web.HTTPNotFound
        if self._server.lock is None:
            return _json("No maintenance task is running", 404)
        return _json([self._task()])

    async def hold_lock(self, request: web.Request) -> web.Response:
        kind, name, words = request.match_info["type"], request.match_info["id"], await request.text()
        said = requests.hold_lock(self._server, kind, name, words)
        if said.status == 409:
            return _json({"error": said.words, "existing_task": self._task()}, 409)
        return _say(said)

    async def release_lock(self, request: web.Request) -> web.Response:
        said = requests.release_lock(self._server, request.match_info["type"], request.match_info["id"])
        if said.status == 409:
            return _json({"error": said.words, "existing_task": self._task()}, 409)
        return _say(said)

    # ── Operators ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def operators(self, request: web.Request) -> web.Response:
        kinds = request.query.getall("kind", [])
        if kinds == ["waiting"]:
            return _json(None)
        running = self._server.operators.running.values()
        return _json([op.line() for op in running if not kinds or set(kinds) & set(op.kinds)])

    async def operator(self, request: web.Request) -> web.Response:
        if request.match_info["id"] == "records":
            return _json([op.line() for op in self._server.operators.records()])
        op = self._server.operators.find(_number(request))
        return _say(NO_OPERATOR if op is None else Said(200, f"status: {op.status}, operator: {op.line()}"))

    async def add_operator(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read(), type=dict[str, Any])
        return _say(requests.add_operator(self._server, body))

    async def cancel_operator(self, request: web.Request) -> web.Response:
        if not self._server.operators.cancel(_number(request)):
            return _say(NO_OPERATOR)
        return _say(Said(200, "The pending operator is canceled."))


def _raw(query: str, name: str) -> str:
    """A parameter as it was sent: keys are bytes, and no text."""
    return next((part.partition("=")[2] for part in query.split("&") if part.partition("=")[0] == name), "")


def _number(request: web.Request) -> int:
    text = request.match_info["id"]
    if not text.isdigit():
        raise web.HTTPBadRequest(text=f'"strconv.ParseUint: parsing \\"{text}\\": invalid syntax"\n')
    return int(text)
