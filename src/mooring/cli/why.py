"""`mooring why`: where a thing is, why there, what it waits for, what it would take."""

from typing import Annotated, Final

from cyclopts import App, Parameter

from mooring.cli.exits import CommandError
from mooring.cli.output import Format, Output, print_json
from mooring.cli.server import Server, ask

app = App(name="why", help="Say where a thing is, why there, what it waits for and what it would take.")

KINDS: Final = ("pod", "node", "machine", "workload", "operator", "store", "cluster")
#: What people type without thinking.
SHORT: Final = {
    "po": "pod",
    "no": "node",
    "op": "operator",
    "tc": "cluster",
    "tidbcluster": "cluster",
    "deploy": "workload/Deployment",
    "deployment": "workload/Deployment",
    "sts": "workload/StatefulSet",
    "statefulset": "workload/StatefulSet",
}


@app.default
def why(
    subject: Annotated[
        str,
        Parameter(
            help="pod/NAME, node/NAME, machine/SERIAL, workload/NAME, operator/N, store/CLUSTER/ID, cluster/NAME.",
            show_default=False,
        ),
    ] = "",
    *,
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"], help="Where the object lives.")] = "default",
    all_: Annotated[bool, Parameter(name="--all", help="The whole history that is kept.")] = False,
    server: Server = "",
    output: Output = Format.TABLE,
) -> None:
    """Explain one object, in the words of the running Mooring.

    Line 1 is the answer. `waiting`: nothing for you to do. `blocked`: a person must act. `refused`: never.
    `placed` and `moving` say so. What does not happen is explained too: the deciders are run dry.

    Example: mooring why pod/demo-tikv-1 -n tidb
    """
    path = spelled_out(subject, namespace)
    answer = ask(server, f"/api/v1/why/{path}", missing=f"nothing is known of {path}")
    if output is Format.JSON:
        print_json(answer)
        return
    from mooring.core.engine.why.text import render

    print("\n".join(render(answer, everything=all_)))


def spelled_out(subject: str, namespace: str) -> str:
    """`deploy/web` in namespace shop → `workload/shop/Deployment/web`; what is written in full stays as it is."""
    if not subject:
        raise CommandError(
            "about what? write KIND/NAME, e.g. pod/demo-tikv-1 -n tidb, node/n7, deploy/web -n shop, operator/42, "
            "store/demo/4 -n tidb, cluster/demo -n tidb or machine/M007; `mooring queue` lists what moves and waits"
        )
    kind, slash, name = subject.partition("/")
    kind, _, owner = SHORT.get(kind, kind).partition("/")
    if not slash or not name or kind not in KINDS:
        raise CommandError(f"{subject!r}: write KIND/NAME with KIND one of {', '.join(KINDS)}, e.g. pod/demo-tikv-1")
    parts = name.split("/")
    if kind in {"pod", "cluster", "workload"} and len(parts) == 1:
        parts = [namespace, name]
    if kind == "store" and len(parts) == 2:
        parts = [namespace, *parts]
    if kind == "workload" and owner and len(parts) == 2:
        parts = [parts[0], owner, parts[1]]
    return "/".join((kind, *parts))
