"""What to say about something that is not there: the nearest names that are, and where to look."""

from collections.abc import Iterable

from mooring.capabilities.registry import descriptors
from mooring.core.engine.engine import Engine
from mooring.core.engine.why.condition import rack_of
from mooring.core.model.spelling import near

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
        asking = [one.name for one in descriptors() if read[0] in one.asks]
        if not engine.on.intersection(asking):
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
