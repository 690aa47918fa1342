"""`mooring handoff`: which members are being handed over, how far they have come, and why one makes no progress."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from mooring.capabilities.handoff.eviction import span
from mooring.cli.connect import AllNamespaces, OnlyNamespace
from mooring.cli.output import Listed, Listing, note, print_data, print_table, print_text
from mooring.cli.server import HERE, Reach, Watch, ask, following, only_in
from mooring.core.model.exits import Exit, UserError

# ── Report text ─────────────────────────────────────────────────────────────────────────────────────────────────────
#
# What `mooring handoff status` prints of the report: rows for people, and remarks above them.

GLYPHS: Final = {"blocked": "▲ blocked", "moving": "● moving", "waiting": "○ waiting", "stable": "  stable"}
COLUMNS: Final = ("STATE", "CLUSTER", "POD", "NODE", "STORE", "LEADERS", "ASKED", "STEP", "PROGRESS")


def member_row(cluster: str, member: Mapping[str, Any]) -> tuple[str, ...]:
    store = f"{member['store']} {member['store_state']}".strip() if member.get("store") else "–"
    if "well" in member:
        store = f"{member['component']}, in sync" if member["well"] else member["detail"] or "not in sync"
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


def remarks(answer: Mapping[str, Any]) -> Iterator[str]:
    if not answer["on"]:
        yield "handoff is off (mooring run --features handoff=true): nothing new is begun"
    elif not answer["leading"]:
        yield "this replica does not lead: it knows what is asked, not how far the leader has come"
    for cluster in answer["clusters"]:
        if cluster["pd"] == "lost":
            yield f"{cluster['cluster']}: PD does not answer: {cluster['pd_detail']}"
    for system in answer.get("systems", ()):
        if system["state"] == "lost":
            yield f"{system['system']}: {system['driver']} does not answer: {system['detail']}"
        elif system["detail"]:
            yield f"{system['system']}: {system['detail']}"


app = App(name="handoff", help="A TiKV pod leaves only after its leaders have left: what is asked, and how far it is.")


@app.command
def status(
    cluster: Annotated[
        str, Parameter(help="NAMESPACE/NAME of one TidbCluster or StatefulSet with leaders; empty shows all.")
    ] = "",
    *,
    namespace: OnlyNamespace = "",
    everywhere: AllNamespaces = False,
    all_: Annotated[bool, Parameter(name="--all", help="Also members without a request.")] = False,
    watch: Watch = False,
    reach: Reach = HERE,
    output: Listed = Listing.TABLE,
) -> None:
    """List the members that are asked to leave, with leaders left, their pace, and how long the rest will take.

    JSON has every member with `state`, `reason`, `waiting_on`, `remedy`, `leaders_left`, `leaders_gone`, `rate_per_s`,
    `estimate_s`, and `still_s` where none has left for a minute and more.

    Example: mooring handoff status --all

    Example: mooring handoff status demo -n tidb -w
    """

    def show(answer: Any) -> None:
        only_in(reach, namespace, everywhere=everywhere, found=bool(answer["clusters"] or answer.get("systems")))
        _show(answer, output, everything=all_ or output is Listing.WIDE)

    following(
        lambda: _asked(reach, cluster, namespace),
        lambda answer: [[m["state"], m.get("leaders_left")] for _, m in _members(answer)],
        show,
        watch=watch,
    )


def _asked(reach: Reach, cluster: str, namespace: str) -> Any:
    answer = ask(reach, "/api/v1/handoff")
    wanted = f"{namespace}/{cluster}" if namespace and "/" not in cluster else cluster
    for part, name in (("clusters", "cluster"), ("systems", "system")):
        found = [c for c in answer.get(part, ()) if namespace in {"", c[name].partition("/")[0]}]
        answer[part] = [c for c in found if c[name] == wanted] if cluster else found
    if cluster and not answer["clusters"] and not answer["systems"]:
        words = f"no TidbCluster {cluster} is known, nor another system with leaders; write NAMESPACE/NAME"
        raise UserError(words, Exit.CHECK_FAILED)
    return answer


def _members(answer: Any) -> list[tuple[str, Any]]:
    """Of TidbClusters and of other systems with leaders: whose, and each."""
    found = [(c["cluster"], m) for c in answer["clusters"] for m in c["members"]]
    return found + [(s["system"], m) for s in answer["systems"] for m in s["members"]]


def _show(answer: Any, output: Listing, *, everything: bool) -> None:
    if output.data:
        print_data(output, answer)
        return
    for remark in remarks(answer):
        note(remark)
    found = _members(answer)
    shown = [(name, m) for name, m in found if everything or m["state"] != "stable" or m["asked"]]
    if output is Listing.NAME:
        print_text("".join(f"pod/{name.partition('/')[0]}/{m['pod']}\n" for name, m in shown), end="")
    elif shown:
        print_table(COLUMNS, [member_row(name, member) for name, member in shown])
    else:
        note("no restart or leader eviction is requested")
    if len(shown) < len(found):
        note(f"{len(shown)} of {len(found)} members, --all shows the rest")
