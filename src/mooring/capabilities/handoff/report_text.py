"""What `mooring handoff status` prints of the report: rows for people, and remarks above them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.capabilities.handoff.tikv.progress import span

GLYPHS: Final = {"blocked": "▲ blocked", "moving": "● moving", "waiting": "○ waiting", "stable": "  stable"}
COLUMNS: Final = ("STATE", "CLUSTER", "POD", "NODE", "STORE", "LEADERS", "ASKED", "STEP", "PROGRESS")


def member_row(cluster: str, member: Mapping[str, Any]) -> tuple[str, ...]:
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


def remarks(answer: Mapping[str, Any]) -> Iterator[str]:
    if not answer["on"]:
        yield "handoff is off (mooring run --features handoff=true): nothing new is begun"
    elif not answer["leading"]:
        yield "this replica does not lead: it knows what is asked, not how far the leader has come"
    for cluster in answer["clusters"]:
        if cluster["pd"] == "lost":
            yield f"{cluster['cluster']}: PD does not answer: {cluster['pd_detail']}"
