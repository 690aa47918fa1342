"""`mooring why`: where a thing is, why there, what it waits for, what it would take."""

from typing import Annotated

from cyclopts import App, Parameter

from mooring.cli.exits import CommandError
from mooring.cli.output import Format, Output, print_json
from mooring.cli.server import Server, ask
from mooring.serve.saying import render

app = App(name="why", help="Say where a thing is, why there, what it waits for and what it would take.")

KINDS = ("pod", "node", "store", "operator", "cluster", "workload", "machine")


@app.default
def why(
    subject: Annotated[str, Parameter(help="pod/NAME, node/NAME, store/CLUSTER/ID, operator/N, cluster/NAME, …")],
    *,
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"])] = "default",
    all_: Annotated[bool, Parameter(name="--all", help="The whole history that is kept.")] = False,
    server: Server = "",
    output: Output = Format.TABLE,
) -> None:
    """Explain one object, in the words of the running Mooring.

    Line 1 is the answer. `waits`: nothing for you to do. `held`: a person must act. `refused`: never, as configured.

    Example: mooring why pod/demo-tikv-1 -n tidb
    """
    kind, slash, name = subject.partition("/")
    if not slash or not name or kind not in KINDS:
        raise CommandError(f"{subject!r}: write KIND/NAME with KIND one of {', '.join(KINDS)}, e.g. pod/demo-tikv-1")
    if (kind in {"pod", "cluster"} and "/" not in name) or (kind == "store" and name.count("/") == 1):
        name = f"{namespace}/{name}"
    answer = ask(server, f"/api/v1/why/{kind}/{name}", missing=f"nothing is known of {kind}/{name}")
    if output is Format.JSON:
        print_json(answer)
    else:
        print("\n".join(render(answer, everything=all_)))
