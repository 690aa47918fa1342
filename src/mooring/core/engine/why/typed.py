"""What people type for an object, as on kubectl's command line: `pods/x`, `deploy/web`, a bare name."""

from typing import Final

from mooring.core.model.exits import UserError
from mooring.core.model.spelling import did_you_mean

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
            "about what? write KIND/NAME, e.g. pod/demo-tikv-1 -n tidb, node/n7, deploy/web -n shop, operator/42, "
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
        raise UserError(f"{typed}: write NAME, Deployment/NAME or StatefulSet/NAME")
    return ("Deployment", "StatefulSet") if not kind else (kind,), name


def namespace_of(found: list[str], kinds: tuple[str, ...], name: str) -> str:
    """Where workloads of this name are, or ""; in more than one, and the person must say which."""
    parts = [subject.split("/") for subject in found]
    spaces = sorted({p[1] for p in parts if p[0] == "workload" and p[-1] == name and p[2] in kinds})
    if len(spaces) > 1 and "default" not in spaces:
        raise UserError(f"{name} is in {', '.join(spaces)}; say which with -n")
    return "default" if "default" in spaces else "".join(spaces)
