"""What a person means by what they typed: a bare name, a kind without a namespace, a name that is unique elsewhere."""

from typing import Final

from mooring.core.engine.engine import Engine
from mooring.core.engine.why.unknown import names_of

KINDS: Final = ("pod", "node", "workload", "cluster", "machine")
SPACED: Final = frozenset({"pod", "workload", "cluster", "store"})


def resolve(engine: Engine, typed: str, namespace: str = "") -> tuple[str, ...]:
    """The subjects that this may mean: one, and it is that; several, and the person must say which; none.

    With a namespace only what is there; without, the namespace `default` wins, then whatever is unique.
    """
    kind, slash, rest = typed.partition("/")
    if not slash:
        found = [one for k in KINDS for one in _named(engine, k, typed)]
    elif kind == "workload" and rest.partition("/")[0] in {"Deployment", "StatefulSet"}:
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
