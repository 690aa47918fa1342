"""`mooring drain`: ask that nodes be emptied, and follow it. The request is an annotation on the Node."""

import asyncio
import json
import re
import time
from collections.abc import Iterable
from typing import Annotated, Any, Final
from urllib.parse import quote

from cyclopts import App, Parameter

from mooring.cli.connect import connect
from mooring.cli.output import Format, Output, Progress, note, print_data
from mooring.cli.pause import seconds, user
from mooring.cli.server import HERE, Reach, ask
from mooring.core.model.exits import Exit, UserError
from mooring.core.model.times import clock

app = App(name="drain")

LOOK_S: Final = 2.0
#: Of the bar, and how many pods of a node are shown.
BAR: Final = 14
SHOWN: Final = 6
SWITCH_ON: Final = "mooring run --features drain=true, or features.drain=true in the chart"
Nodes = Annotated[tuple[str, ...], Parameter(help="Names of nodes.")]


def readable_selector(_: Any, selector: str) -> None:
    """Said before anybody is asked. What is not plainly wrong is left to the API server."""
    if selector and not _SELECTOR.fullmatch(selector):
        raise ValueError(f"{selector!r} is not a label selector such as pool=old,zone!=a or 'pool in (a, b)'")


_TERM: Final = r"\s*(!?\s*[\w./-]+|[\w./-]+\s*(==?|!=)\s*[\w.-]*|[\w./-]+\s+(not)?in\s*\([^()]*\))\s*"
_SELECTOR: Final = re.compile(f"{_TERM}(,{_TERM})*")
Selector = Annotated[
    str,
    Parameter(name=["--selector", "-l"], help="Nodes with these labels, e.g. pool=old.", validator=readable_selector),
]


@app.default
def drain(
    nodes: Nodes = (),
    /,
    *,
    selector: Selector = "",
    deadline: Annotated[str, Parameter(help="How long to wait, e.g. 30m. The request stays. Default: for ever.")] = "",
    wait: Annotated[bool, Parameter(negative="--no-wait", help="Follow it until the nodes are empty.")] = True,
    cancel: Annotated[bool, Parameter(help="Call it off: pods that have not left stay, our cordon is lifted.")] = False,
    dry_run: Annotated[bool, Parameter(help="Rehearse it on a snapshot of the cluster.")] = False,
    reach: Reach = HERE,
    output: Output = Format.TABLE,
) -> int:
    """Empty nodes: cordon, hand leaders over, replacements first, budgets kept, DaemonSets left.

    Exit 0 when every node holds only DaemonSet and mirror pods, 1 when something is blocked at the deadline. Ctrl-C
    leaves it going.

    Example: mooring drain n4

    Example: mooring drain -l pool=old --deadline 30m

    Example: mooring drain n4 --cancel
    """
    if bool(nodes) == bool(selector):
        raise UserError("name nodes, e.g. mooring drain n4, or select them with -l, e.g. -l pool=old")
    until = time.time() + seconds(deadline, "--deadline") if deadline else None
    if dry_run:
        names = asyncio.run(chosen(reach, nodes, selector))
        return rehearsed(reach, ["empty", *names], output, "drain --dry-run")
    if not cancel:
        must_be_on(reach)
    names = asyncio.run(annotated(reach, nodes, selector, None if cancel else request(until)))
    if cancel:
        note(f"the drain of {', '.join(names)} is called off")
        return Exit.DONE
    if not wait:
        note(f"{', '.join(names)} will be emptied; to follow it: mooring drain {' '.join(names)}")
        return Exit.DONE
    return _followed(reach, names, until, output)


def must_be_on(reach: Reach) -> None:
    if not ask(reach, "/api/v1/drain")["on"]:
        raise UserError(f"the running Mooring has drain off; switch it on: {SWITCH_ON}", Exit.UNREACHABLE)


def rehearsed(reach: Reach, words: Iterable[str], output: Format, asked: str) -> int:
    """Played on a snapshot that is taken now; the exit code is that of `mooring rehearse play`."""
    from mooring.cli import from_lab

    play = from_lab("rehearse", asked).load()
    where = [*(("--kubeconfig", reach.kubeconfig) if reach.kubeconfig else ())]
    where += [*(("--context", reach.context) if reach.context else ())]
    code = play(["play", *words, "--live", *where, "-o", str(output)], result_action="return_value")
    return code if isinstance(code, int) else Exit.DONE


def request(until: float | None = None) -> str:
    """The value of an annotation that asks."""
    from mooring.core.model.times import rfc3339

    end = {} if until is None else {"until": rfc3339(until)}
    return json.dumps({"by": user() or "somebody", "since": rfc3339(time.time()), **end})


async def annotated(reach: Reach, nodes: tuple[str, ...], selector: str, value: str | None) -> list[str]:
    """The nodes that were meant, each with the annotation, or without it."""
    from mooring.capabilities.drain.nodes import DRAIN
    from mooring.core.model.kinds import Kind

    async with connect(reach.kubeconfig, reach.context) as api:
        names = await _chosen(api, nodes, selector)
        for name in names:
            await api.patch(Kind.NODE, "", name, {"metadata": {"annotations": {DRAIN: value}}})
    return names


async def chosen(reach: Reach, nodes: tuple[str, ...], selector: str) -> list[str]:
    async with connect(reach.kubeconfig, reach.context) as api:
        return await _chosen(api, nodes, selector)


async def _chosen(api: Any, nodes: tuple[str, ...], selector: str) -> list[str]:
    """All that were meant are there."""
    from mooring.clients.ports import NotFoundError
    from mooring.core.model.kinds import Kind

    names = list(dict.fromkeys(nodes))
    if selector:
        found: Any = await api.raw("GET", f"/api/v1/nodes?labelSelector={quote(selector)}")
        names = [one["metadata"]["name"] for one in found["items"]]
    if not names:
        raise UserError(f"-l {selector}: no node has these labels")
    for name in names:
        try:
            await api.get(Kind.NODE, "", name)
        except NotFoundError:
            raise UserError(f"{name}: no node of this name; see kubectl get nodes") from None
    return names


def _followed(reach: Reach, names: list[str], until: float | None, output: Format) -> int:
    line, course = Progress(), Course(names)
    try:
        while True:
            rows = {one["node"]: one for one in ask(reach, "/api/v1/drain")["nodes"]}
            mine = [rows.get(name, _unseen(name)) for name in names]
            for words in course.news(mine):
                line.clear()
                note(words)
            done = all(one["state"] == "drained" for one in mine)
            late = until is not None and time.time() >= until
            if done or late:
                line.clear()
                if output.data:
                    print_data(output, {"nodes": mine})
                return Exit.DONE if done else Exit.CHECK_FAILED
            line.lines(course.shown(mine, time.monotonic()))
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        line.clear()
        note(f"the request stays; to end it: mooring drain {' '.join(names)} --cancel")
        raise


def _unseen(name: str) -> dict[str, Any]:
    """Asked for a moment ago."""
    return {"node": name, "state": "draining", "pods_left": 0, "pods": [], "blocked": [], "drained_at": None}


class Course:
    """What has been seen of a drain: news once each, a picture at every look."""

    def __init__(self, names: list[str]) -> None:
        self._told = set[str]()
        #: Node → the most pods that were still to leave it, when, and the pods of the last look.
        self._most = dict[str, tuple[int, float]]()
        self._pods: dict[str, set[str]] = {name: set() for name in names}

    def news(self, rows: Iterable[dict[str, Any]]) -> list[str]:
        """What has not been said yet: a line per pod that has left or is blocked, and per node that is empty."""
        fresh = []
        for row in rows:
            name, pods = row["node"], set(row["pods"])
            fresh += [f"{pod} has left {name}" for pod in sorted(self._pods[name] - pods)]
            self._pods[name] = pods
            lines = [f"{b['pod']} is blocked ({b['reason']}): {b['detail']}; {b['to_type']}" for b in row["blocked"]]
            lines += [f"{name} is drained"] if row["state"] == "drained" else []
            fresh += [one for one in lines if one not in self._told]
            self._told.update(lines)
        return fresh

    def shown(self, rows: Iterable[dict[str, Any]], now: float) -> list[str]:
        """A line per node with a bar and about how long, and one per pod that something is done about."""
        lines = []
        for row in rows:
            name, left = row["node"], row["pods_left"]
            most, since = self._most.get(name, (0, now))
            if left > most:
                most, since = self._most[name] = (left, now)
            gone = most - left
            if row["state"] == "drained" or not most:
                lines.append(f"{name} is {row['state']}")
                continue
            about = f", about {clock(int((now - since) / gone * left))} more" if gone and not row["blocked"] else ""
            bar = "█" * round(BAR * gone / most) + "░" * (BAR - round(BAR * gone / most))
            lines.append(f"{name} is being emptied: {gone} of {most} pods left it{about}  [{bar}]")
            lines += [f"  ▲ {b['pod']}  {b['detail']}:  {b['to_type']}" for b in row["blocked"][:SHOWN]]
            lines += [
                f"  {d['pod']}  {d['what'].partition(': ')[2] or d['what']}" for d in row.get("doing", ())[:SHOWN]
            ]
        return lines
