"""`mooring why`: where a thing is, why there, what it waits for, what it would take."""

from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from mooring.cli.connect import ObjectNamespace
from mooring.cli.exits import CommandError, Exit
from mooring.cli.output import Format, Output, painted, plain, print_json, runnable, width
from mooring.cli.server import HERE, Reach, ask
from mooring.core.model.spelling import did_you_mean

app = App(name="why")

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


#: A shell waits for its completions: better none than late.
COMPLETE_S: Final = 0.5


def objects(typed: str, reach: Reach = HERE) -> list[str]:
    """What may follow what was typed: kinds, and once a name has begun, the objects of the running Mooring."""
    kind, slash, name = typed.partition("/")
    if not slash:
        return sorted(f"{one}/" for one in KINDS if one.startswith(typed))
    full, _, owner = kind_of(kind).partition("/")
    if not full or not name:
        return []
    try:
        found = ask(reach, f"/api/v1/find?q={name}", timeout_s=COMPLETE_S, forward=False)["found"]
    except CommandError:
        return []
    made = []
    for subject in found:
        mine, _, rest = subject.partition("/")
        last = "/".join(rest.split("/")[-2:]) if mine == "store" else rest.rpartition("/")[2]
        if mine == full and (not owner or f"/{owner}/" in subject) and last.startswith(name):
            made.append(f"{kind}/{last}")
    return sorted(set(made))


@app.default
def why(
    subject: Annotated[
        str,
        Parameter(
            help="KIND/NAME or a name: pod, node, machine, workload, operator, store, cluster, rack.",
            completer=lambda context: objects(context.incomplete),
        ),
    ] = "",
    name: Annotated[str, Parameter(help="The name, where KIND and NAME are typed apart.")] = "",
    /,
    *,
    namespace: ObjectNamespace = "",
    all_: Annotated[bool, Parameter(name="--all", help="The whole history that is kept.")] = False,
    reach: Reach = HERE,
    output: Output = Format.TABLE,
) -> None:
    """Explain one object, in the words of the running Mooring.

    Line 1 is the answer. `waiting`: nothing for you to do. `blocked`: a person must act. `refused`: never.
    `stable` and `moving` say so. What does not happen is explained too: the capabilities are run dry.

    Example: mooring why pod/demo-tikv-1 -n tidb

    Example: mooring why node n7 -o json

    Example: mooring why deploy/web -n shop --all
    """
    show(_asked(reach, f"{subject}/{name}" if name else subject, namespace), output, everything=all_)


def _asked(reach: Reach, subject: str, namespace: str) -> Any:
    try:
        path = spelled_out(subject, namespace)
    except CommandError as error:
        # NAMESPACE/NAME, as our own answers write it, unless nothing there is called so.
        space, slash, name = subject.partition("/")
        if not (space and slash and name) or namespace or "/" in name or kind_of(space):
            raise
        try:
            return ask(reach, f"/api/v1/why/{name}?namespace={space}", missing="none")
        except CommandError as answered:
            raise (error if answered.code is Exit.NOT_AS_IT_SHOULD_BE else answered) from None
    where = f"?namespace={namespace}" if namespace else ""
    return ask(reach, f"/api/v1/why/{path}{where}", missing=f"{path} not found")


def show(answer: Any, output: Format, *, everything: bool) -> None:
    if output is Format.JSON:
        print_json(answer)
        return
    from mooring.core.engine.why.text import render

    first, *rest = map(plain, render(answer, everything=everything, width=width()))
    print("\n".join([painted(first, answer["state"]), *map(runnable, rest)]))


def spelled_out(subject: str, namespace: str = "") -> str:
    """`deploy/web` in namespace shop → `workload/shop/Deployment/web`. Without a namespace Mooring finds the object."""
    if not subject:
        raise CommandError(
            "about what? write KIND/NAME, e.g. pod/demo-tikv-1 -n tidb, node/n7, deploy/web -n shop, operator/42, "
            "store/demo/4 -n tidb, cluster/demo -n tidb, rack/2 or machine/M007; `mooring queue` lists what moves and "
            "waits"
        )
    kind, slash, name = subject.partition("/")
    if not name:
        if kind_of(kind):
            raise CommandError(f"{kind}: which one? write {kind}/NAME; `mooring queue` lists what moves and waits")
        if not slash:
            return subject
    kind, _, owner = kind_of(kind).partition("/")
    if not name or not kind:
        typed = subject.partition("/")[0]
        hint = did_you_mean(typed, (*KINDS, *SHORT)) if not kind else ""
        raise CommandError(f"{subject!r}: write KIND/NAME with KIND one of {', '.join(KINDS)}{hint}")
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
