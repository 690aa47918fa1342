"""Checks of a Mooring that runs: who leads, does the webhook answer, is PD there, is anything left behind."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from mooring.capabilities.registry import descriptors, names, server_of
from mooring.clients.kube.api import HttpKubeApi
from mooring.clients.ports import NotFoundError, PortError, RefusedError, remedy_of
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.finding import Finding, ill, skipped, well
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import DRIVERS
from mooring.core.model.marks import AGENT, CORDONED_BY, HANDOFF, LEAVING, RETIRING, Mark, read_mark, read_marks
from mooring.core.model.tidb import PdView, TidbCluster
from mooring.core.model.times import moment
from mooring.install.cleanup.leftovers import FeatureLeftover, feature_of
from mooring.process.admission.configurations import NAME as HOOKS
from mooring.process.admission.configurations import webhooks_of

#: Asks a path of the running Mooring: JSON, or None when there is no answer.
Ask = Callable[[str], Awaitable[Any]]

#: How much of a long list a finding shows.
SHOWN: Final = 3
#: An agent says every hour that it looks; on a new node it has so long to come.
_HEARD_S: Final = 2.5 * 3600
_COMES_S: Final = 600.0


async def answers(ask: Ask, server: str, features: frozenset[str], namespace: str) -> list[Finding]:
    status = await ask("/api/v1/status")
    if status is None:
        fix = f"kubectl -n {namespace} port-forward deploy/mooring 8390   (or --server, MOORING_HTTP_TOKEN)"
        return [ill("mooring", "MO301", f"Mooring answers at {server}", "no answer", fix)]
    found = [
        well("mooring", f"Mooring answers ({status['identity']}, features: {', '.join(status['features']) or 'none'})")
    ]
    missing = await ask("/readyz")
    if isinstance(missing, str) and not missing.startswith("ok"):
        found.append(ill("mooring", "MO304", "ready", missing.strip(), "mooring doctor --wait 60"))
    if status["leading"] and not status["deciding"]:
        seen = "it leads and has not read all marks back yet"
        found.append(ill("mooring", "MO303", "the leader decides", seen, "mooring doctor --wait 60"))
    if stopped := status.get("blackbox_stopped"):
        fix = (
            f"make room or name another directory (blackbox.dir); kubectl -n {namespace} rollout restart deploy/mooring"
        )
        found.append(ill("mooring", "MO306", "the black box records", stopped, fix, warning=True))
    on = frozenset(status["features"])
    if features and on != features:
        seen = f"on: {', '.join(sorted(on)) or 'none'}; asked about: {', '.join(sorted(features))}"
        fix = "mooring run --features …, or the chart's features"
        found.append(ill("mooring", "MO305", "features", seen, fix, warning=True))
    return found


async def leader(api: HttpKubeApi, namespace: str, lease: str, now: float) -> Finding:
    what = f"lease {namespace}/{lease}"
    fix = f"kubectl -n {namespace} get pods; kubectl -n {namespace} logs deploy/mooring"
    try:
        spec = (await api.get(Kind.LEASE, namespace, lease)).get("spec", {})
    except NotFoundError:
        return ill("mooring", "MO302", what, "it does not exist: no replica has ever led", fix)
    except PortError as error:
        return skipped("mooring", what, str(error))
    holder = spec.get("holderIdentity") or ""
    if not holder:
        return ill("mooring", "MO302", what, "it was given back: no replica runs", fix)
    renewed = moment(spec.get("renewTime") or "")
    limit = float(spec.get("leaseDurationSeconds") or 0)
    if renewed is not None and now - renewed > limit + 2.0:
        return ill(
            "mooring", "MO302", what, f"{holder} renewed it {now - renewed:.0f} s ago; it lasts {limit:.0f} s", fix
        )
    return well("mooring", f"{holder} leads")


async def agents(api: HttpKubeApi, namespace: str, nodes: Iterable[Node], now: float) -> list[Finding]:
    """Of the agent, where it is installed or has been: who is silent, who cannot read its cloud, who wants a reboot."""
    try:
        found = await api.get(Kind.DAEMON_SET, f"{namespace}-agent", "mooring-agent")
        selector: Mapping[str, str] | None = found["spec"]["template"]["spec"].get("nodeSelector") or {}
    except PortError:
        selector = None
    silent, unread, reboot = list[str](), list[str](), list[str]()
    told = 0
    for node in sorted(nodes, key=lambda n: n.name):
        text = node.annotations.get(AGENT)
        said = _told(text) if text is not None else {}
        told += text is not None
        checked = moment(str(said.get("checked", "")))
        due = text is not None or (selector is not None and all(node.labels.get(k) == v for k, v in selector.items()))
        if due and node.ready == "True" and now - (checked or node.created_at) > (_HEARD_S if checked else _COMES_S):
            silent.append(node.name)
        elif problem := said.get("problem"):
            unread.append(f"{node.name}: {str(problem)[:120]}")
        notices = said.get("notices")
        reboot += [node.name] if isinstance(notices, dict) and "reboot-required" in notices else []
    if selector is None and not told:
        return []
    logs = f"kubectl -n {namespace}-agent logs ds/mooring-agent"
    gone = "" if selector is not None else "   (not installed any more: mooring cleanup)"
    what = "the agent tells of interruptions"
    findings = []
    if silent:
        seen = f"silent on {len(silent)} of its nodes: {', '.join(silent[:SHOWN])}"
        findings.append(ill("agent", "MO307", what, seen, logs + gone, warning=True))
    if unread:
        findings.append(ill("agent", "MO307", what, "; ".join(unread[:SHOWN]), logs, warning=True))
    if reboot:
        findings.append(well("agent", f"{len(reboot)} nodes require a reboot: {', '.join(reboot[:SHOWN])}"))
    return findings or [well("agent", f"{what}, on {told} nodes")]


def _told(text: str) -> Mapping[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


async def webhooks(api: HttpKubeApi, namespace: str, *, on: bool, judged: bool = True) -> list[Finding]:
    """Configured, and reached: where workloads are `judged`, one that we must refuse is offered, dry."""
    owner = server_of("webhook")
    there = []
    for kind in (Kind.MUTATING_WEBHOOK, Kind.VALIDATING_WEBHOOK):
        try:
            await api.get(kind, "", HOOKS)
            there.append(kind)
        except NotFoundError:
            continue
        except PortError as error:
            return [skipped("webhooks", "webhook configurations", str(error))]
    users = sorted(one.name for one in descriptors() if webhooks_of(one.serves))
    if not on and there:
        seen = f"{HOOKS} is there, and {' and '.join(users)} are off"
        fix = f"mooring cleanup {' '.join(f'--feature {name}' for name in users)} --yes   (a leader does it by itself)"
        return [ill("webhooks", "MO403", "webhook configurations", seen, fix, warning=True)]
    if not on:
        return [well("webhooks", f"{' and '.join(users)} are off, and no webhook is configured")]
    if len(there) < 2:
        fix = f"mooring manifests --features {owner.name}=true … | kubectl apply -f -   (the installer makes them)"
        return [ill("webhooks", "MO401", "webhook configurations", f"{2 - len(there)} of 2 missing", fix)]
    found = [well("webhooks", "webhook configurations are there")]
    if not judged:
        return found
    what = "the API server reaches the webhook"
    assert owner.refused is not None
    probe, word = owner.refused
    try:
        await api.create(Kind.DEPLOYMENT, dict(probe), dry_run=True)
    except RefusedError as error:
        if "workloads.mooring.dev" in str(error) or word in str(error):
            return [*found, well("webhooks", f"{what} (it refused a bad mode, dry)")]
        return [*found, skipped("webhooks", what, str(error))]
    except PortError as error:
        return [*found, skipped("webhooks", what, str(error))]
    seen = "a workload with a mode that does not exist was admitted: the call failed, and failurePolicy is Ignore"
    remark = "does the API server reach port 9443? if it calls from other addresses: nodeCidrs, or webhookOpenToAll"
    fix = f"kubectl -n {namespace} get endpointslices,networkpolicies   ({remark})"
    return [*found, ill("webhooks", "MO402", what, seen, fix)]


#: How the trouble with an address begins that answers otherwise than ours.
ANSWERED: Final = "answered"


async def extender(asked: int | None, probe: Callable[[], Awaitable[str]], address: str, *, on: bool) -> Finding:
    """Configured and answering. `asked`: how often schedulers have asked the running one, None when unknown;
    that is proof also where the extender listens on a pod's loopback, out of the doctor's reach."""
    if not on:
        return well("extender", f"{server_of('extender').name} is off: no scheduler has to ask")
    if asked:
        return well("extender", f"schedulers ask the extender ({asked} times so far)")
    trouble = await probe()
    # One that runs and is asked for its figures listens, if perhaps out of the doctor's reach.
    if trouble and (asked is None or trouble.startswith(ANSWERED)):
        fix = "mooring run --listen-extender ADDR, and the same address in the scheduler's configuration"
        return ill("extender", "MO501", f"the extender answers at {address}", trouble, fix)
    if asked is None:
        return well("extender", f"the extender answers at {address}")
    it = "it runs" if trouble else f"it answers at {address}"
    seen = f"{it}, and no scheduler has asked this replica yet: members may be scheduled elsewhere"
    fix = "mooring home scheduler-config   (then kube-scheduler --config with what it prints)"
    return ill("extender", "MO502", "a scheduler asks the extender", seen, fix, warning=True)


async def placement_drivers(
    clusters: list[TidbCluster],
    look: Callable[[TidbCluster], Awaitable[PdView]],
    seen: frozenset[str] = frozenset(),
) -> list[Finding]:
    """Each PD, and stores whose leaders leave though no mark of ours and no entry of tidb-operator says why.

    `seen`: clusters whose PD answers the running Mooring; one that only this machine does not reach is fine.
    """
    found: list[Finding] = []

    async def seen_from_here(tc: TidbCluster) -> PdView | PortError:
        try:
            return await look(tc)
        except PortError as error:
            return error

    # Together: a silent one takes its time.
    for tc, view in zip(clusters, await asyncio.gather(*map(seen_from_here, clusters)), strict=True):
        if isinstance(view, PortError):
            if str(tc.key) in seen:
                found.append(well("pd", f"PD of {tc.key} answers Mooring (not this machine: {str(view)[:60]}…)"))
                continue
            fix = f"mooring run --pd {tc.key}=http://…:2379, or mooring.dev/pd-endpoints there and pd-hosts in settings"
            found.append(ill("pd", "MO601", f"PD of {tc.key} answers", str(view), remedy_of(view) or fix))
            continue
        found.append(well("pd", f"PD of {tc.key} answers ({len(view.stores)} stores)"))
        for store_id in view.evicting or ():
            if store_id not in _wanted(tc, view):
                words = f"store {store_id} gives its leaders away, and nothing says why"
                fix = f"pd-ctl scheduler remove evict-leader-scheduler-{store_id}   (or mooring cleanup --dry-run)"
                found.append(ill("pd", "MO602", f"evict-leader schedulers of {tc.key}", words, fix, warning=True))
    return found or [well("pd", "no TidbCluster, so no PD to ask")]


def led_systems(told: object) -> list[Finding]:
    """Systems with leaders, as they answer the running Mooring (`/api/v1/handoff`): reachable, readable, who leads."""
    found: list[Finding] = []
    for one in told.get("systems", ()) if isinstance(told, dict) else ():
        what = f"{one['driver']} of {one['system']}"
        namespace, _, name = one["system"].partition("/")
        if one["state"] == "answers" and one["leader"] != "nobody" and one["well"] == len(one["members"]):
            found.append(well("leaders", f"{what} answers: {one['leader']} leads, {one['well']} members are well"))
        elif one["state"] == "unseen" and one["driver"] in DRIVERS:
            found.append(skipped("leaders", f"{what} answers", "the running Mooring has not asked it yet"))
        else:
            said = one["detail"] or f"{one['leader']} leads, {one['well']} of {len(one['members'])} members are well"
            seen = said if one["driver"] in DRIVERS else f"no driver has that name; there are {', '.join(DRIVERS)}"
            fix = f"kubectl -n {namespace} get sts {name} -o jsonpath='{{.metadata.annotations}}'   (docs/leaders.md)"
            found.append(ill("leaders", "MO605", f"{what} answers, and all its members are well", seen, fix))
    return found


def _wanted(tc: TidbCluster, view: PdView) -> set[int]:
    names = {
        m.pod.rpartition("/")[2] or name for name, m in (read_marks(tc.annotations.get(HANDOFF, "")) or {}).items()
    }
    names |= set(tc.evict_leader_status) | set(tc.operator_evict_leader)
    marks = (read_marks(tc.annotations.get(HANDOFF, "")) or {}).values()
    return {m.store_id for m in marks} | {s.id for s in view.stores if s.pod_name in names}


def marks(
    pods: list[Pod],
    nodes: list[Node],
    clusters: list[TidbCluster],
    running: frozenset[str] | None,
    on: frozenset[str] = frozenset(names()),
) -> list[Finding]:
    """Marks that cannot be read, and marks of operators that do not run. `running` None: no Mooring answered. Those of
    features that are not on are for `remains`."""
    found: list[Finding] = []
    count = 0
    for where, text, many in _marked(pods, nodes, clusters):
        read: Mapping[str, Mark] | None = read_marks(text) if many else _alone(text)
        if read is None:
            fix = f"{_annotate(where)}-   (Mooring will not touch it)"
            found.append(ill("marks", "MO701", where.split()[0], f"{text[:80]!r} is not a mark", fix, warning=True))
            continue
        read = {name: mark for name, mark in read.items() if feature_of(mark) in on}
        count += len(read)
        for mark in read.values():
            if (
                running is not None
                and mark.operator not in running
                and (not mark.restart or mark.restart not in running)
            ):
                seen = f"op {mark.operator} ({mark.reason}) is not running"
                fix = "mooring cleanup --dry-run, then --yes"
                found.append(ill("marks", "MO702", where.split()[0], seen, fix, warning=True))
    if running is None and count:
        found.append(skipped("marks", f"{count} marks", "no Mooring answers, so it is not known which still count"))
    return found or [well("marks", f"{count} marks, each of something that runs" if count else "no marks are left")]


def remains(standing: list[FeatureLeftover], on: frozenset[str]) -> list[Finding]:
    """What features that are off have begun: their rights went with them, so only a person can end it."""
    found = []
    for feature in sorted({b.feature for b in standing if b.writes} - on):
        whats = [b.what for b in standing if b.feature == feature and b.writes]
        more = f" and {len(whats) - SHOWN} more" if len(whats) > SHOWN else ""
        seen = f"{feature} is off, and this is still to be ended: {'; '.join(whats[:SHOWN])}{more}"
        fix = f"mooring cleanup --feature {feature} --yes   (or switch {feature} on until it has ended)"
        found.append(ill("marks", "MO703", f"what {feature} began", seen, fix))
    return found


def _annotate(where: str) -> str:
    """`pod/shop/web-1 KEY` → `kubectl -n shop annotate pod web-1 KEY`."""
    what, _, key = where.partition(" ")
    kind, *namespace, name = what.split("/")
    return " ".join(["kubectl", *(["-n", *namespace] if namespace else []), "annotate", kind, name, key])


def _alone(text: str) -> dict[str, Mark] | None:
    mark = read_mark(text)
    return None if mark is None else {"": mark}


def _marked(pods: list[Pod], nodes: list[Node], clusters: list[TidbCluster]) -> list[tuple[str, str, bool]]:
    found = [
        (f"pod/{p.namespace}/{p.name} {LEAVING}", p.annotations[LEAVING], False)
        for p in pods
        if LEAVING in p.annotations
    ]
    found += [(f"node/{n.name} {RETIRING}", n.annotations[RETIRING], False) for n in nodes if RETIRING in n.annotations]
    # A cordon outlives its operator: the mark says for whom it stands. Only a mark without a cordon is left over.
    found += [
        (f"node/{n.name} {CORDONED_BY}", n.annotations[CORDONED_BY], False)
        for n in nodes
        if CORDONED_BY in n.annotations and not n.unschedulable
    ]
    found += [
        (f"tidbcluster/{t.key} {HANDOFF}", t.annotations[HANDOFF], True) for t in clusters if HANDOFF in t.annotations
    ]
    return found
