"""What a frame leaves out: the whole of a view page by page, what of it matches some words, and one rack's machines.

A frame carries the first 200 rows of each view. Scrolling on and searching ask here; only the rows of
the page asked for are built.
"""

import asyncio
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import Any, Final

import msgspec

from mooring.core.engine.standing import Standing, standings
from mooring.core.engine.why.condition import rack_of
from mooring.core.engine.why.words import span
from mooring.core.model import subjects
from mooring.core.model.machine import MachineState
from mooring.process.http import pagerows as rows
from mooring.process.http.frames import PAGE, Framer, all_stores, row_or_defect
from mooring.process.http.pagerows import by_number
from mooring.process.http.queuerows import rows_of
from mooring.process.replica import Replica

PAGED: Final = ("queue", "stores", "nodes", "racks")
MOST_FOUND: Final = 50
#: Of two that match alike, the one whose kind stands first here.
KINDS: Final = ("operator", "node", "machine", "cluster", "store", "workload", "pod")
PODS_PER_SLICE: Final = 10_000
NODES_PER_SLICE: Final = 100
MOST_MACHINES: Final = 60
#: Machines of which the registry has nothing to say beyond their node.
AT_REST: Final = {MachineState.HEALTHY, MachineState.UNINITIALIZED, MachineState.RETIRED}


class RowPage(msgspec.Struct):
    """`total` counts what matches, not only what is here."""

    offset: int
    total: int
    rows: list[Any]


async def row_page(framer: Framer, replica: Replica, view: str, offset: int, words: str) -> RowPage:
    if not framer.node_names and view in {"nodes", "racks"}:
        await framer.build()
    match view:
        case "queue":
            return _queue(replica, offset, words)
        case "stores":
            return _cut([r for r in all_stores(replica.engine) if words in _text(r)], offset)
        case "racks":
            return _cut([r for r in framer.all_racks if words in f"rack {r.id}"], offset)
    return await _nodes(framer, replica, offset, words)


def _queue(replica: Replica, offset: int, words: str) -> RowPage:
    engine = replica.engine
    found: Sequence[Standing] = standings(engine)
    if words:
        found = [one for one in found if one.matches(words)]
    shown = found[offset : offset + PAGE]
    made = [row for _, row in rows_of(engine, shown, first=offset == 0 and not words)]
    return RowPage(offset, len(found), made)


async def _nodes(framer: Framer, replica: Replica, offset: int, words: str) -> RowPage:
    world, names = replica.world, framer.node_names
    if words:
        found = []
        for number, name in enumerate(names, 1):
            node = world.node(name)
            if node is not None:
                state, news, _, _ = rows.news_of(node, replica.engine.departures)
                of_class = rows.class_word(world.node_class(name), state)
                pods = " ".join(f"{p.namespace}/{p.name}" for p in world.pods_on(name))
                if words in f"{name} {of_class} {state} rack {rack_of(node)} {news} {pods}".lower():
                    found.append(name)
            if number % NODES_PER_SLICE == 0:
                await asyncio.sleep(0)
        names = found
    shown = [node for name in names[offset : offset + PAGE] if (node := world.node(name)) is not None]
    made = [row_or_defect(lambda n=n: rows.node_row(replica.engine, n), n.name) for n in shown]  # type: ignore[misc]
    return RowPage(offset, len(names), made)


def _cut(found: Sequence[Any], offset: int) -> RowPage:
    return RowPage(offset, len(found), list(found[offset : offset + PAGE]))


def _text(row: Any) -> str:
    if isinstance(row, dict):
        return str(row["id"]).lower()
    holders = " ".join(who for who, _, _ in row.used_by)
    return f"{row.id} {row.pod} {row.node} rack {row.rack} {row.state} {holders} {' '.join(row.waiting)}".lower()


# ── Find ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def find(replica: Replica, wanted: str) -> tuple[list[str], int]:
    """Subjects of `why` whose name contains the words, the closest first, and how many there are beyond those."""
    best: list[str] = []
    count = 0
    for some in _in_slices(replica, wanted) if wanted else ():
        count += len(some)
        best = nsmallest(MOST_FOUND, [*best, *some], key=lambda subject: _closeness(subject, wanted))
        await asyncio.sleep(0)
    return best, count - len(best)


def _closeness(subject: str, wanted: str) -> tuple[int, int, str]:
    kind, _, rest = subject.lower().partition("/")
    name = rest.rpartition("/")[2]
    match = 0 if wanted in {name, rest} else 1 if name.startswith(wanted) else 2
    return match, KINDS.index(kind), subject


def _in_slices(replica: Replica, wanted: str) -> Iterator[list[str]]:
    """There may be 150,000 pods: the loop is given back after each slice."""
    engine, world = replica.engine, replica.world
    yield [subjects.operator(o.id) for o in engine.queue.operators() if wanted in f"op {o.id} {o.subject}".lower()]
    yield [subjects.node(n.name) for n in world.nodes() if wanted in n.name.lower()]
    yield [subjects.machine(m.serial) for m in world.machines() if wanted in m.serial.lower()]
    for tc in list(world.tidb_clusters()):
        view = world.pd(tc.key)
        stores = [s for s in (view.stores if view is not None else ()) if s.state != "Tombstone"]
        texts = {(it := subjects.store(tc.key, s.id)): f"store {s.id} {it} {s.pod_name}" for s in stores}
        texts[subjects.cluster(tc.key)] = str(tc.key)
        yield [subject for subject, text in texts.items() if wanted in text.lower()]
    yield [subjects.workload(w) for w in world.workloads() if wanted in str(w.key).lower()]
    pods = list(world.pods())
    for start in range(0, len(pods), PODS_PER_SLICE):
        names = [f"{pod.namespace}/{pod.name}" for pod in pods[start : start + PODS_PER_SLICE]]
        yield [subjects.pod(name) for name in names if wanted in name.lower()]


# ── A rack ────────────────────────────────────────────────────────────────────────────────────────────────────────


def rack_words(framer: Framer, replica: Replica, rack: str) -> str | None:
    """A rack in words: the sums, then each machine with news by the name that `why` takes. None: no such rack."""
    row = next((r for r in framer.all_racks if r.id == rack), None)
    if row is None:
        return None
    world, now = replica.world, replica.shell.now()
    sums = [(row.interrupted, "interrupted"), (row.silent, "not ready"), (row.leaving, "leaving")]
    sums += [(row.cordoned, "cordoned"), (row.ok, "ready"), (row.spare, "spare machines")]
    said = ", ".join(f"{n} {word}" for n, word in sums if n)
    lines = [f"rack {rack}: {row.total} nodes: {said}.", ""]
    nodes = sorted((n for n in world.nodes() if (rack_of(n) or "–") == rack), key=lambda n: by_number(n.name))
    nodes.sort(key=lambda n: rows.news_of(n, replica.engine.departures)[0] == "ok")
    width = max((len(n.name) for n in nodes[:MOST_MACHINES]), default=0) + 7
    for node in nodes[:MOST_MACHINES]:
        _, words, since, until = rows.news_of(node, replica.engine.departures)
        times = [f"for {span(now - since)}"] if since else []
        times += [f"{span(until - now)} left"] if until else []
        lines.append(f"node/{node.name}".ljust(width) + ", ".join([words or str(world.node_class(node.name)), *times]))
    for machine in world.machines():
        if str(machine.rack) == rack and machine.state not in AT_REST:
            lines.append(f"machine/{machine.serial}  {machine.state}")
    if len(nodes) > MOST_MACHINES:
        lines.append(f"{len(nodes) - MOST_MACHINES} more nodes: find “rack {rack}” among the nodes")
    return "\n".join(lines) + "\n"
