"""`mooring handoff`: which members are being handed over, how far they have come, and why one does not get on."""

from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from mooring.capabilities.handoff.progress import span
from mooring.cli.exits import CommandError, Exit
from mooring.cli.output import Format, Output, note, print_json, print_table
from mooring.cli.server import HERE, Reach, ask

app = App(name="handoff", help="A TiKV pod leaves only after its leaders have left: what is asked, and how far it is.")

GLYPHS: Final = {"blocked": "▲ blocked", "moving": "● moving", "waiting": "○ waiting", "stable": "  stable"}
COLUMNS: Final = ("STATE", "CLUSTER", "POD", "NODE", "STORE", "LEADERS", "ASKED", "STEP", "PROGRESS")


@app.command
def status(
    cluster: Annotated[str, Parameter(help="NAMESPACE/NAME of one TidbCluster; empty shows all.")] = "",
    *,
    all_: Annotated[bool, Parameter(name="--all", help="Members nobody asks anything of, too.")] = False,
    reach: Reach = HERE,
    output: Output = Format.TABLE,
) -> None:
    """List the members that are asked to leave, with leaders left, their pace, and how long the rest will take.

    JSON has every member with `state`, `reason`, `waiting_on`, `remedy`, `leaders_left`, `leaders_gone`, `rate_per_s`,
    `estimate_s`, and `still_s` where none has left for a minute and more.

    Example: mooring handoff status --all

    Example: mooring handoff status tidb/demo -o json
    """
    answer = ask(reach, "/api/v1/handoff")
    if cluster:
        answer["clusters"] = [c for c in answer["clusters"] if c["cluster"] == cluster]
        if not answer["clusters"]:
            raise CommandError(f"no TidbCluster {cluster} is known; write NAMESPACE/NAME", Exit.NOT_AS_IT_SHOULD_BE)
    if output is Format.JSON:
        print_json(answer)
        return
    _remarks(answer)
    found = [(c["cluster"], m) for c in answer["clusters"] for m in c["members"]]
    shown = [(name, m) for name, m in found if all_ or m["state"] != "stable" or m["asked"]]
    if shown:
        print_table(COLUMNS, [row(name, member) for name, member in shown])
    else:
        note("nothing is asked of any member")
    if len(shown) < len(found):
        note(f"{len(shown)} of {len(found)} members, --all shows the rest")


def row(cluster: str, member: dict[str, Any]) -> tuple[str, ...]:
    store = f"{member['store']} {member['store_state']}".strip() if member.get("store") else "–"
    leaders = member.get("leaders_left")
    if member["component"] == "pd":
        leaders = "leads PD" if member.get("leads") else None
    words = member["given_up"] or member["waiting_on"] or member["progress"]
    if member.get("still_s") and not member["waiting_on"]:
        words = f"{words}, none for {span(member['still_s'])}"
    if member["remedy"]:
        words = f"{words}; {member['remedy']}"
    return (
        GLYPHS.get(member["state"], member["state"]),
        cluster,
        member["pod"],
        member["node"] or "–",
        store,
        "–" if leaders is None else str(leaders),
        member["asked"] or "–",
        member["step"] or "–",
        words or "–",
    )


def _remarks(answer: dict[str, Any]) -> None:
    if not answer["on"]:
        note("handoff is off (mooring run --features handoff=true): nothing new is begun")
    elif not answer["leading"]:
        note("this replica does not lead: it knows what is asked, not how far the leader has come")
    for cluster in answer["clusters"]:
        if cluster["pd"] == "lost":
            note(f"{cluster['cluster']}: PD does not answer: {cluster['pd_detail']}")
