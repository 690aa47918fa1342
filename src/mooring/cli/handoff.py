"""`mooring handoff`: which members are being handed over, how far they have come, and why one makes no progress."""

from typing import Annotated

from cyclopts import App, Parameter

from mooring.capabilities.handoff.report_text import COLUMNS, member_row, remarks
from mooring.cli.connect import OnlyNamespace
from mooring.cli.output import Format, Output, note, print_json, print_table
from mooring.cli.server import HERE, Reach, ask
from mooring.core.model.exits import Exit, UserError

app = App(name="handoff", help="A TiKV pod leaves only after its leaders have left: what is asked, and how far it is.")


@app.command
def status(
    cluster: Annotated[str, Parameter(help="NAMESPACE/NAME of one TidbCluster; empty shows all.")] = "",
    *,
    namespace: OnlyNamespace = "",
    all_: Annotated[bool, Parameter(name="--all", help="Also members without a request.")] = False,
    reach: Reach = HERE,
    output: Output = Format.TABLE,
) -> None:
    """List the members that are asked to leave, with leaders left, their pace, and how long the rest will take.

    JSON has every member with `state`, `reason`, `waiting_on`, `remedy`, `leaders_left`, `leaders_gone`, `rate_per_s`,
    `estimate_s`, and `still_s` where none has left for a minute and more.

    Example: mooring handoff status --all

    Example: mooring handoff status demo -n tidb -o json
    """
    answer = ask(reach, "/api/v1/handoff")
    answer["clusters"] = [c for c in answer["clusters"] if namespace in {"", c["cluster"].partition("/")[0]}]
    if cluster:
        wanted = f"{namespace}/{cluster}" if namespace and "/" not in cluster else cluster
        answer["clusters"] = [c for c in answer["clusters"] if c["cluster"] == wanted]
        if not answer["clusters"]:
            raise UserError(f"no TidbCluster {cluster} is known; write NAMESPACE/NAME", Exit.CHECK_FAILED)
    if output is Format.JSON:
        print_json(answer)
        return
    for remark in remarks(answer):
        note(remark)
    found = [(c["cluster"], m) for c in answer["clusters"] for m in c["members"]]
    shown = [(name, m) for name, m in found if all_ or m["state"] != "stable" or m["asked"]]
    if shown:
        print_table(COLUMNS, [member_row(name, member) for name, member in shown])
    else:
        note("no restart or leader eviction is requested")
    if len(shown) < len(found):
        note(f"{len(shown)} of {len(found)} members, --all shows the rest")
