"""What people type for an object (`pods/x`, `deploy/web`, a bare name), what it may mean, and what to say when there is
no such object: the nearest names that exist, and where to look.
"""

from collections.abc import Iterable
from typing import Final

from mooring.core.engine.engine import Engine
from mooring.core.engine.why.condition import rack_of
from mooring.core.model.exits import UserError
from mooring.core.model.kinds import WORKLOADS
from mooring.core.model.spelling import did_you_mean, near

KINDS: Final = ("pod", "node", "machine", "workload", "operator", "store", "cluster", "rack")
#: What people type on kubectl's command line.
SHORT: Final = {
    "po": "pod",
    "no": "node",
    "op": "operator",
    "ops": "operator",
    "tc": "cluster",
    "tidbcluster": "cluster",
    "deploy": "workload/Deployment",
    "deployment": "workload/Deployment",
    "sts": "workload/StatefulSet",
    "statefulset": "workload/StatefulSet",
    "rollout": "workload/Rollout",
    "cloneset": "workload/CloneSet",
}


def beginnings(typed: str) -> list[str]:
    """The kinds that may follow what was typed."""
    return sorted(f"{one}/" for one in KINDS if one.startswith(typed))


def completed(typed: str, found: list[str]) -> list[str]:
    """Of the subjects that were found, those that what was typed may become."""
    kind, _, name = typed.partition("/")
    full, _, owner = kind_of(kind).partition("/")
    made = set()
    for subject in found:
        mine, _, rest = subject.partition("/")
        last = "/".join(rest.split("/")[-2:]) if mine == "store" else rest.rpartition("/")[2]
        if mine == full and (not owner or f"/{owner}/" in subject) and last.startswith(name):
            made.add(f"{kind}/{last}")
    return sorted(made)


def spelled_out(subject: str, namespace: str = "") -> str:
    """`deploy/web` in namespace shop → `workload/shop/Deployment/web`. Without a namespace Mooring finds the object."""
    if not subject:
        raise UserError(
            "Which object? Use KIND/NAME, e.g. pod/demo-tikv-1 -n tidb, node/n7, deploy/web -n shop, operator/42, "
            "store/demo/4 -n tidb, cluster/demo -n tidb, rack/2 or machine/M007; `mooring queue` lists what moves and "
            "waits"
        )
    kind, slash, name = subject.partition("/")
    if not name:
        if kind_of(kind):
            raise UserError(f"{kind}: which one? write {kind}/NAME; `mooring queue` lists what moves and waits")
        if not slash:
            return subject
    kind, _, owner = kind_of(kind).partition("/")
    if not name or not kind:
        typed = subject.partition("/")[0]
        hint = did_you_mean(typed, (*KINDS, *SHORT)) if not kind else ""
        raise UserError(f"{subject!r}: write KIND/NAME with KIND one of {', '.join(KINDS)}{hint}")
    parts = name.split("/")
    if namespace and kind in {"pod", "cluster", "workload"} and len(parts) == 1:
        parts = [namespace, name]
    if namespace and kind == "store" and len(parts) == 2:
        parts = [namespace, *parts]
    if kind == "workload" and owner and len(parts) < 3:
        parts = [*parts[:-1], owner, parts[-1]]
    return "/".join((kind, *parts))


def kind_of(typed: str) -> str:
    """Singular, plural or short, in any case, with its API group or without (deployment.apps); "": none of ours."""
    word = typed.lower().partition(".")[0]
    for one in (word, word.removesuffix("s"), word.removesuffix("es")):
        if one in SHORT or one in KINDS:
            return SHORT.get(one, one)
    return ""


def workload_typed(typed: str) -> tuple[tuple[str, ...], str]:
    """Of NAME, Deployment/NAME or sts/NAME: the kinds that it may be of, and its name."""
    written, slash, name = typed.rpartition("/")
    group, _, kind = kind_of(written).partition("/")
    if not name or (slash and group != "workload"):
        raise UserError(f"{typed}: write NAME, Deployment/NAME, StatefulSet/NAME, Rollout/NAME or CloneSet/NAME")
    return tuple(WORKLOADS) if not kind else (kind,), name


def namespace_of(found: list[str], kinds: tuple[str, ...], name: str) -> str:
    """Where workloads of this name are, or ""; in more than one, and the person must say which."""
    parts = [subject.split("/") for subject in found]
    spaces = sorted({p[1] for p in parts if p[0] == "workload" and p[-1] == name and p[2] in kinds})
    if len(spaces) > 1 and "default" not in spaces:
        raise UserError(f"{name} is in {', '.join(spaces)}; say which with -n")
    return "default" if "default" in spaces else "".join(spaces)


BARE_KINDS: Final = ("pod", "node", "workload", "cluster", "machine")
SPACED: Final = frozenset({"pod", "workload", "cluster", "store"})


def resolve(engine: Engine, typed: str, namespace: str = "") -> tuple[str, ...]:
    """The subjects that this may mean: one, and it is that; several, and the person must say which; none.

    With a namespace only what is there; without, the namespace `default` wins, then whatever is unique.
    """
    kind, slash, rest = typed.partition("/")
    if not slash:
        found = [one for k in BARE_KINDS for one in _named(engine, k, typed)]
    elif kind == "workload" and rest.partition("/")[0] in WORKLOADS:
        owner, _, name = rest.partition("/")
        found = [_with_owner(one, owner) for one in _named(engine, kind, name)]
        found = [one for one in found if _exists(engine, one)]
    else:
        found = _named(engine, kind, rest)
    wanted = namespace or "default"
    here = [one for one in found if _namespace_of(one) == wanted]
    if here or (namespace and any(_namespace_of(one) for one in found)):
        found = here
    return tuple(sorted(set(found)))


def _named(engine: Engine, kind: str, name: str) -> list[str]:
    """Subjects of this kind whose name, without its namespace, is this one; a store is CLUSTER/ID, or its ID alone."""
    parts = name.count("/") + 1 if kind == "store" else 1
    return [f"{kind}/{one}" for one in names_of(engine, kind) if "/".join(one.split("/")[-parts:]) == name]


def _with_owner(subject: str, owner: str) -> str:
    kind, namespace, name = subject.split("/")
    return f"{kind}/{namespace}/{owner}/{name}"


def _exists(engine: Engine, subject: str) -> bool:
    _, namespace, owner, name = subject.split("/")
    return any(w.kind == owner and w.namespace == namespace and w.name == name for w in engine.world.workloads())


def _namespace_of(subject: str) -> str:
    kind, _, rest = subject.partition("/")
    return rest.partition("/")[0] if kind in SPACED else ""


MOST_NEAR = 2


def unknown(engine: Engine, name: str) -> str:
    """Says "pod/x not found in namespace y; did you mean …?"; without a namespace, "in any namespace"."""
    kind, _, rest = name.partition("/")
    if kind == "operator":
        return _operator(engine, rest)
    namespace, slash, last = rest.rpartition("/")
    said = f"{name} not found"
    if kind == "store":
        said = f"store/{last} not found in {f'cluster {namespace}' if slash else 'any cluster'}"
    elif kind in {"pod", "workload", "cluster"}:
        where = f"namespace {namespace.partition('/')[0]}" if slash else "any namespace"
        said = f"{kind}/{last} not found in {where}"
    if read := {"machine": ("registry", "no machines are"), "store": ("pd", "PD is not")}.get(kind):
        asking = engine.described.asking(read[0])
        if asking and not engine.on.intersection(asking):
            off, it = (f"{asking[0]} is", "it") if len(asking) == 1 else (f"{' and '.join(asking)} are", "one")
            return f"{said}: {off} off, so {read[1]} read; switch {it} on with --features {asking[-1]}=true"
    names = list(names_of(engine, kind))
    near = nearest(rest, names)
    if near:
        return f"{said}; did you mean {' or '.join(f'{kind}/{n}' for n in near)}?"
    if not engine.synced:
        return f"{said}; this replica has not seen the whole cluster yet"
    many = f"{len(names)} of that kind are known" if names else "none of that kind is known"
    return f"{said}; {many}"


def names_of(engine: Engine, kind: str) -> Iterable[str]:
    """Every name of one kind, spelled as a subject's rest: for hints and for completion."""
    world = engine.world
    match kind:
        case "pod":
            return (str(p.key) for p in world.pods())
        case "node":
            return (n.name for n in world.nodes())
        case "rack":
            return {rack for n in world.nodes() if (rack := rack_of(n))} | {str(m.rack) for m in world.machines()}
        case "cluster":
            return (str(tc.key) for tc in world.tidb_clusters())
        case "workload":
            return (str(w.key) for w in world.workloads())
        case "machine":
            return (m.serial for m in world.machines())
        case "operator":
            return (o.id for o in engine.queue.operators())
        case "store":
            views = ((tc.key, world.pd(tc.key)) for tc in world.tidb_clusters())
            return (f"{key}/{s.id}" for key, view in views if view is not None for s in view.stores)
        case _:
            return ()


def nearest(typed: str, names: Iterable[str]) -> list[str]:
    """Same name elsewhere first (another namespace), then those spelled nearly alike."""
    every = sorted(set(names))
    last = typed.rpartition("/")[2]
    same = [name for name in every if name.rpartition("/")[2] == last and name != typed]
    close = near(typed, every, MOST_NEAR)
    return [*dict.fromkeys((*same, *sorted(close)))][:MOST_NEAR]


def _operator(engine: Engine, number: str) -> str:
    """Numbers only rise: one below the newest has been, and its history is no longer kept."""
    known = [e.id for e in engine.history.timeline if e.subjects] + [o.id for o in engine.queue.operators()]
    newest = max((int(i) for i in known if i.isdecimal()), default=0)
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        return f"operator/{number} not found; an operator is a number, e.g. operator/{newest or 42}"
    if not newest:
        return f"operator/{number} not found; no operator has run since this replica leads"
    if int(number) > newest:
        return f"operator/{number} not found: the newest is {newest}; this one never was"
    return f"operator/{number} ended long ago or never was: the newest is {newest}, and only the last few are kept"
