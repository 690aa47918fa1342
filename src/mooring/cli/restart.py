"""`mooring restart`: restart a pod, a workload or a component of a TidbCluster, one member after another."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import quote

from cyclopts import App, Parameter

from mooring.cli.connect import ObjectNamespace, connect
from mooring.cli.drain import LOOK_S, rehearsed, request
from mooring.cli.output import Format, Output, Progress, note, print_data
from mooring.cli.server import HERE, Reach, ask
from mooring.core.model.exits import Exit, UserError

app = App(name="restart")

KINDS: Final = {
    "pod": "pod", "po": "pod", "pods": "pod",
    "sts": "StatefulSet", "statefulset": "StatefulSet",
    "deploy": "Deployment", "deployment": "Deployment",
    "tc": "tc", "tidbcluster": "tc",
}  # fmt: skip
TIDB_RESTART: Final = "tidb.pingcap.com/restart"
RESTART: Final = "mooring.dev/restart"
COMPONENT: Final = "app.kubernetes.io/component"
COMPONENTS: Final = frozenset({"tikv", "pd", "tidb"})
#: States of a row of the queue that a person has to end.
NEEDS_YOU: Final = frozenset({"blocked", "refused"})


@app.default
def restart(
    subject: Annotated[str, Parameter(help="pod/X, sts/X, deploy/X or tc/X.")],
    /,
    *,
    component: Annotated[str, Parameter(help="Of a TidbCluster: tikv, pd or tidb. Default: tikv.")] = "tikv",
    namespace: ObjectNamespace = "default",
    cancel: Annotated[bool, Parameter(help="Take the request back from those that have not gone yet.")] = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Rehearse it on a snapshot of the cluster.")] = False,
    timeout: Annotated[str, Parameter(help="How long to wait, e.g. 30m. The request stays. Default: for ever.")] = "",
    reach: Reach = HERE,
    output: Output = Format.TABLE,
) -> int:
    """Restart safely: one after another, leaders handed over, replacements first. Exit 0 when all are back.

    What keeps a pod until a person acts is said at once, with what to type; the command waits on.

    Example: mooring restart sts/db -n shop

    Example: mooring restart tc/demo --component tikv -n tidb
    """
    from mooring.cli.pause import seconds

    kind, slash, name = subject.partition("/")
    if not slash or not name or kind not in KINDS:
        raise UserError(f"{subject}: must be pod/NAME, sts/NAME, deploy/NAME or tc/NAME")
    if component not in COMPONENTS:
        raise UserError(f"--component {component}: must be tikv, pd or tidb")
    until = time.time() + seconds(timeout, "--timeout") if timeout else None
    if dry_run:
        names = asyncio.run(_named(reach, KINDS[kind], name, component, namespace))
        return rehearsed(reach, ["restart-pods", *names], output, "restart --dry-run")
    return asyncio.run(_restart(reach, KINDS[kind], name, component, namespace, until, output, cancel=cancel))


async def _named(reach: Reach, kind: str, name: str, component: str, namespace: str) -> list[str]:
    async with connect(reach.kubeconfig, reach.context) as api:
        pods = await _pods(api, kind, name, component, namespace)
    if not pods:
        raise UserError(f"{kind}/{name} in {namespace} has no pods", Exit.CHECK_FAILED)
    return [f"{namespace}/{pod['metadata']['name']}" for pod in pods]


async def _restart(
    reach: Reach,
    kind: str,
    name: str,
    component: str,
    namespace: str,
    until: float | None,
    output: Format,
    *,
    cancel: bool,
) -> int:
    from mooring.core.model.kinds import Kind

    async with connect(reach.kubeconfig, reach.context) as api:
        pods = await _pods(api, kind, name, component, namespace)
        if not pods:
            raise UserError(f"{kind}/{name} in {namespace} has no pods", Exit.CHECK_FAILED)
        keys = [annotation(pod) for pod in pods]
        if not cancel:
            await asyncio.to_thread(_must_be_on, reach, set(keys))
        for pod, key in zip(pods, keys, strict=True):
            metadata = pod["metadata"]
            asks = {key: None if cancel else request()}
            patch = {"metadata": {"uid": metadata["uid"], "annotations": asks}}
            await api.patch(Kind.POD, namespace, metadata["name"], patch)
        if cancel:
            note(f"the restart of {len(pods)} pods is called off")
            return Exit.DONE
        old = {p["metadata"]["uid"] for p in pods}
        look = partial(_pods, api, kind, name, component, namespace)
        return await _back(reach, look, old, until, output, one=kind == "pod")


def annotation(pod: Any) -> str:
    """Members of TiKV, PD and TiDB are restarted by handoff, by an annotation of their own."""
    labels = pod["metadata"].get("labels") or {}
    member = labels.get("app.kubernetes.io/managed-by") == "tidb-operator" and labels.get(COMPONENT) in COMPONENTS
    return TIDB_RESTART if member else RESTART


def _must_be_on(reach: Reach, keys: set[str]) -> None:
    """Nobody else acts on these annotations: without the feature the command would wait for ever."""
    on = ask(reach, "/api/v1/status")["features"]
    for feature in sorted({"handoff" if key == TIDB_RESTART else "drain" for key in keys} - set(on)):
        words = f"the running Mooring has {feature} off; switch it on: mooring run --features {feature}=true"
        raise UserError(f"{words}, or features.{feature}=true in the chart", Exit.UNREACHABLE)


def label_selector(whose: str, selector: Any) -> str:
    """As a query. What a query of labels cannot say is refused: an empty one would mean the whole namespace."""
    labels = selector.get("matchLabels") or {}
    if not labels or selector.get("matchExpressions"):
        raise UserError(f"{whose} selects its pods by expressions: restart them one by one, as pod/NAME")
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


async def _pods(api: Any, kind: str, name: str, component: str, namespace: str) -> list[Any]:
    from mooring.clients.ports import NotFoundError
    from mooring.core.model.kinds import Kind

    try:
        if kind == "pod":
            return [await api.get(Kind.POD, namespace, name)]
        if kind == "tc":
            wanted = f"app.kubernetes.io/instance={name},{COMPONENT}={component}"
        else:
            found = await api.get(Kind(kind), namespace, name)
            wanted = label_selector(f"{kind}/{name}", found["spec"]["selector"])
    except NotFoundError:
        raise UserError(f"{kind}/{name} is not in namespace {namespace}") from None
    page = await api.raw("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(wanted)}")
    return list(page["items"])


async def _back(
    reach: Reach,
    look: Callable[[], Awaitable[list[Any]]],
    old: set[str],
    until: float | None,
    output: Format,
    *,
    one: bool,
) -> int:
    """Until none of the old ones is there, and as many as before are Ready."""
    line, told = Progress(), set[str]()
    try:
        while True:
            try:
                pods = await look()
            except UserError:
                pods = []
            left = [p for p in pods if p["metadata"]["uid"] in old]
            ready = sum(_ready(p) for p in pods if p["metadata"]["uid"] not in old)
            # The successor of a Deployment's pod has another name: where one pod was named, its end counts.
            done = not left and (ready >= len(old) or (one and not pods))
            blocked = await asyncio.to_thread(_blocked, reach, left) if left else []
            for by in blocked:
                if (words := f"{by['pod']} is blocked: {by['detail']}; {by['to_type']}") not in told:
                    told.add(words)
                    line.clear()
                    note(words.removesuffix("; "))
            if done or (until is not None and time.time() >= until):
                line.clear()
                rest = f"{len(left)} of {len(old)} are still to restart; mooring why pod/NAME says what keeps one"
                note(f"{len(old)} restarted" if done else rest)
                if output.data:
                    names = [p["metadata"]["name"] for p in left]
                    print_data(output, {"asked": len(old), "back": ready, "left": names, "blocked": blocked})
                return Exit.DONE if done else Exit.CHECK_FAILED
            line.line(f"{len(left)} of {len(old)} still to restart, {ready} back", stay=True)
            await asyncio.sleep(LOOK_S)
    except asyncio.CancelledError:
        line.clear()
        note("the request stays; to end it: the same command with --cancel")
        raise


def _blocked(reach: Reach, pods: Iterable[Any]) -> list[dict[str, str]]:
    """Those that wait for a person, and what to type."""
    names = {f"{p['metadata']['namespace']}/{p['metadata']['name']}" for p in pods}
    rows = [r for r in ask(reach, "/api/v1/queue")["rows"] if r.get("about") in names and r["state"] in NEEDS_YOU]
    return [{"pod": r["about"], "detail": r.get("waiting_on", ""), "to_type": r.get("remedy", "")} for r in rows]


def _ready(pod: Any) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
