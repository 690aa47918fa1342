"""All checks in order. It goes on after a failure, except where nothing further could be seen."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import aiohttp
import msgspec

from mooring.capabilities.registry import descriptors, hooks, serving
from mooring.clients.kube.api import HttpKubeApi
from mooring.clients.kube.listing import list_all, tidb_clusters
from mooring.clients.mooring import trusting
from mooring.clients.ports import Clock, NotFoundError, PortError, Randomness
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.descriptor import Descriptor, Examined
from mooring.core.model.finding import Finding, ill, skipped, well
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING
from mooring.core.model.tidb import PdView, TidbCluster
from mooring.install.cleanup.leftovers import leftovers
from mooring.install.doctor import cluster, running
from mooring.install.doctor.safety import local, masked, reach, unsafe
from mooring.process.assemble import make_pd
from mooring.process.pd_directory import endpoints
from mooring.process.settings.config import Config, host_port, written_out

TIMEOUT_S: Final = 5.0


class DoctorTarget(msgspec.Struct, frozen=True, kw_only=True):
    api: HttpKubeApi
    clock: Clock
    randomness: Randomness
    config: Config
    #: Setting → where it came from.
    sources: Mapping[str, str]
    #: Where a running Mooring answers.
    server: str
    token: str = ""
    #: Whose rights are asked about: a ServiceAccount in our namespace, or "" for the caller.
    account: str = ""


class _Mooring:
    """The one that runs, asked over its API. One that gives no answer at all is not asked again."""

    def __init__(self, session: aiohttp.ClientSession, target: DoctorTarget) -> None:
        self.session = session
        self._base, self._trust = trusting(target.server.rstrip("/"))
        self._headers = {"Authorization": f"Bearer {target.token}"} if target.token else {}
        self._silent = False

    async def ask(self, path: str) -> Any:
        """JSON or text; None: no answer, or not the one that was asked for."""
        if self._silent:
            return None
        try:
            async with self.session.get(self._base + path, headers=self._headers, ssl=self._trust or True) as answer:
                text = await answer.text()
                if answer.content_type == "application/json":
                    return msgspec.json.decode(text)
                return text if answer.status in {200, 503} else None
        except ValueError:
            return None
        except (aiohttp.ClientError, TimeoutError):
            self._silent = True
            return None


async def examine(
    target: DoctorTarget, *, pre: bool = False, say: Callable[[str], None] = lambda _: None
) -> list[Finding]:
    """`pre`: before anything is installed; only what the cluster must bring along. `say`: what is looked at."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session:
        return await _examine(target, _Mooring(session, target), say, pre=pre)


async def _examine(target: DoctorTarget, mooring: _Mooring, say: Callable[[str], None], *, pre: bool) -> list[Finding]:
    api, config = target.api, target.config
    say("the API server")
    first = await cluster.reachable(api)
    if first.code == "MO101":
        return [first, *await _without_api(target, mooring, say, pre=pre)]
    server_now = await cluster.server_time(api)
    found = [first, await cluster.clock_skew(api, target.clock.now), await cluster.tidb_kind(api, config.on())]
    say("rights")
    if pre:
        return [*found, *await cluster.may_install(api), *_settings(target)]
    there = await cluster.namespace(api, config.namespace)
    account = await _account(target)
    found += [there, *await cluster.rights(api, config.namespace, config.on(), account)]
    say(f"Mooring at {target.server}")
    found += await _running(target, mooring, server_now)
    say("PD, marks and leftovers")
    found += await _left_behind(target, mooring, found)
    return [*found, *_settings(target)]


async def _without_api(
    target: DoctorTarget, mooring: _Mooring, say: Callable[[str], None], *, pre: bool
) -> list[Finding]:
    """The API server does not answer: what can be looked at without it, and what could not."""
    config = target.config
    because = "the API server does not answer"
    found = [skipped(group, group, because) for group in ("rights", "webhooks", "marks")]
    if not pre:
        say(f"Mooring at {target.server}")
        found += await running.answers(mooring.ask, target.server, config.on(), config.namespace)
        say("PD")
        keys = (key.partition("/") for key in config.pd)
        named = [TidbCluster(namespace=ns, name=name, uid="", resource_version="") for ns, _, name in keys]
        found += await running.placement_drivers(named, lambda tc: _look(target, tc))
    return [*found, *_settings(target)]


async def _running(target: DoctorTarget, mooring: _Mooring, server_now: float | None) -> list[Finding]:
    config, ask = target.config, mooring.ask
    found = await running.answers(ask, target.server, config.on(), config.namespace)
    found.append(await _leader(target, await ask("/api/v1/status"), server_now))
    on = await _features(target, mooring)
    hooked = bool(hooks(on))
    found += await running.webhooks(target.api, config.namespace, on=hooked, judged=serving("webhook", on))
    found += await reach(target.api, config) if hooked else []
    host, port = host_port(config.listen_extender, "listen-extender")
    address = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
    asked = _asked(await ask("/metrics"))
    if not asked and await cluster.is_sandbox(target.api):
        found.append(
            skipped("extender", "the extender", "the sandbox's scheduler has not asked, or asks without a network")
        )
    else:
        found.append(
            await running.extender(asked, lambda: _probe(mooring.session, address), address, on=serving("extender", on))
        )
    return found


async def _leader(target: DoctorTarget, status: Any, server_now: float | None) -> Finding:
    """The lease, its dates read by the cluster's clock; where that is not told, the leader's word is taken."""
    if server_now is None and isinstance(status, dict) and status["leading"]:
        return well("mooring", f"{status['identity']} leads, as it says itself")
    now = server_now or target.clock.now()
    return await running.leader(target.api, target.config.namespace, target.config.lease_name, now)


async def _features(target: DoctorTarget, mooring: _Mooring) -> frozenset[str]:
    """What is on: the running one knows best, else what was asked about."""
    status = await mooring.ask("/api/v1/status")
    return frozenset(status["features"]) if isinstance(status, dict) else target.config.on()


async def _probe(session: aiohttp.ClientSession, address: str) -> str:
    """What is wrong with the extender; empty when it answers. Asked by the wrong method, which it answers with the
    right one: a question as a scheduler asks it would be counted as one."""
    try:
        async with session.get(f"{address}/scheduler/filter") as answer:
            # Off loopback nobody gets further without the token.
            ours = answer.status == 401 or (answer.status == 405 and answer.headers.get("Allow") == "POST")
            return "" if ours else f"{running.ANSWERED} {answer.status}: {(await answer.text())[:120]}"
    except (aiohttp.ClientError, TimeoutError) as error:
        return str(error) or type(error).__name__


def _asked(scrape: Any) -> int | None:
    """How often schedulers have asked, by the running one's own count."""
    if not isinstance(scrape, str):
        return None
    return int(sum(float(n) for n in re.findall(r"^mooring_extender_requests_total\{.*\} (\S+)", scrape, re.MULTILINE)))


async def _left_behind(target: DoctorTarget, mooring: _Mooring, before: list[Finding]) -> list[Finding]:
    """PDs and marks, both from one reading of pods, nodes and TidbClusters."""
    try:
        pods, nodes = await list_all(target.api, Kind.POD), await list_all(target.api, Kind.NODE)
    except PortError as error:
        found = await _of_capabilities(target, await _features(target, mooring), ())
        return [skipped("marks", "marks", str(error)), *found]
    try:
        named = await tidb_clusters(target.api)
    except PortError:
        named = []
    told = await mooring.ask("/api/v1/handoff")
    found = await running.placement_drivers(named, lambda tc: _look(target, tc), _seen_by(told))
    found += running.led_systems(told)
    there = [n for n in nodes if isinstance(n, Node)]
    found += await running.agents(target.api, target.config.namespace, there, target.clock.now())
    found += await _of_capabilities(target, await _features(target, mooring), tuple(named), pods, nodes)
    alive: frozenset[str] | None = None
    on = target.config.on() if target.sources.get("features", "default") != "default" else None
    if not any(f.code == "MO301" for f in before):
        queue = await mooring.ask("/api/v1/queue")
        on = await _features(target, mooring)
        if isinstance(queue, dict):
            alive = frozenset(op["id"] for op in queue["running"])
    marked = (
        [p for p in pods if isinstance(p, Pod)],
        there,
        named,
    )
    if on is None:  # no answer, and it was not said what should be on
        return [*found, *running.marks(*marked, alive)]
    remains = running.remains(leftovers(*marked, await _replica_sets(target.api, marked[0])), on)
    rest = running.marks(*marked, alive, on)
    return [*found, *remains, *(f for f in rest if f.code or not remains)]


async def _of_capabilities(
    target: DoctorTarget,
    on: frozenset[str],
    clusters: tuple[TidbCluster, ...],
    pods: Sequence[object] = (),
    nodes: Sequence[object] = (),
) -> list[Finding]:
    """What each capability finds itself."""
    seen_pods = tuple(p for p in pods if isinstance(p, Pod))
    seen_nodes = tuple(n for n in nodes if isinstance(n, Node))
    found: list[Finding] = []
    for one in descriptors():
        try:
            settings = await _settings_of(target, one)
        except PortError as error:
            found.append(skipped(one.name, f"{one.name}'s settings", str(error)))
            continue
        seen = Examined(
            config=target.config,
            on=one.name in on,
            clusters=clusters,
            pods=seen_pods,
            nodes=seen_nodes,
            now=target.clock.now(),
            settings=settings,
        )
        found += one.examine(seen)
    return found


async def _settings_of(target: DoctorTarget, one: Descriptor) -> Mapping[str, str] | None:
    if not one.settings_map:
        return None
    try:
        found = await target.api.get(Kind.CONFIG_MAP, target.config.namespace, one.settings_map)
    except NotFoundError:
        return None
    return found.get("data") or {}


def _seen_by(told: object) -> frozenset[str]:
    """TidbClusters whose PD answers the running Mooring: that is what counts, wherever the doctor stands."""
    clusters = told.get("clusters", ()) if isinstance(told, dict) else ()
    return frozenset(one["cluster"] for one in clusters if one["pd"] == "answers")


async def _look(target: DoctorTarget, tc: TidbCluster) -> PdView:
    config = target.config
    make = make_pd(target.clock, target.randomness, config, target.api)
    pd = make(tc.key, endpoints(tc, config.pd, config.pd_hosts))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await pd.observe()
    except TimeoutError:
        raise PortError(f"no answer within {TIMEOUT_S:.0f} s") from None
    finally:
        await pd.close()


async def _replica_sets(api: HttpKubeApi, pods: list[Pod]) -> set[str]:
    """Those that exist, when a detached pod asks for one."""
    if not any(LEAVING in pod.annotations for pod in pods):
        return set()
    try:
        return {one.uid for one in await list_all(api, Kind.REPLICA_SET)}
    except PortError:
        return set()


async def _account(target: DoctorTarget) -> str:
    """The ServiceAccount when it is there (and we may ask in its name); else the caller."""
    if not target.account:
        return ""
    path = f"/api/v1/namespaces/{target.config.namespace}/serviceaccounts/{target.account}"
    try:
        await target.api.raw("GET", path)
    except (NotFoundError, PortError):
        return ""
    return target.account


def _settings(target: DoctorTarget) -> list[Finding]:
    """Every setting that is not the default, with its source."""
    values = msgspec.to_builtins(written_out(target.config))
    found = [
        well("settings", f"{key} = {_short(values[key], secret='token' in key)}   from {source}")
        for key, source in sorted(target.sources.items())
        if source != "default"
    ]
    if not local(target.config.listen_http, "listen-http") and not target.config.http_token:
        seen = f"listen-http is {target.config.listen_http} and http-token is not set: page and API answer no request"
        fix = "set MOORING_HTTP_TOKEN (the chart: http.tokenSecret)"
        found.append(ill("settings", "MO802", "readers have a token", seen, fix, warning=True))
    found += unsafe(target.config)
    return found or [well("settings", "all settings are defaults")]


def _short(value: Any, *, secret: bool) -> str:
    if secret:
        return "(set)"
    text = masked(value if isinstance(value, str) else msgspec.json.encode(value).decode())
    return text if len(text) <= 60 else text[:59] + "…"
