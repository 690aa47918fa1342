"""`mooring why`: where a thing is, why there, what it waits for, what it would take."""

import datetime as dt
from typing import Annotated, Any

from cyclopts import App, Parameter

from mooring.cli.exits import CommandError
from mooring.cli.output import Format, Output, print_json
from mooring.cli.server import Server, ask

app = App(name="why", help="Say where a thing is, why there, what it waits for and what it would take.")

KINDS = ("pod", "node", "store", "operator", "cluster", "workload", "machine")
SHOWN = 4


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


def render(answer: dict[str, Any], *, everything: bool = False) -> list[str]:
    lines = [answer["answer"], ""]
    lines += [f"{line['label']:<12}{line['text']}" for line in answer.get("lines", [])]
    history = answer.get("history", [])
    if history:
        shown = history if everything else history[-SHOWN:]
        hidden = "" if len(shown) == len(history) else f"   ({len(shown)} of {len(history)}, --all)"
        for index, entry in enumerate(shown):
            label = "history" if index == 0 else ""
            words = " ".join(filter(None, (entry["verb"], entry.get("reason", ""), entry.get("text", ""))))
            lines.append(f"{label:<12}{_clock(entry['at'])} {words}{hidden if index == 0 else ''}")
    who = "leader" if answer.get("leading") else "a follower: it does not decide"
    lines.append(f"as of {_clock(answer['as_of'])} · {who} · same answer: -o json")
    return lines


def _clock(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%H:%M:%S")
