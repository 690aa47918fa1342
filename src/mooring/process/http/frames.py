"""Frames: what the page shows, built once per tick for all who watch.

A frame is a small value: a head, and five tables of rows by id. Walking 5,000 nodes and 150,000 pods is done in
slices, with the loop given back in between, so that deciding and admission on the same loop do not wait for a picture.
What is large is summed up here; the rest of a list is fetched page by page.
"""

import asyncio
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

import msgspec
import structlog

from mooring.core.engine.engine import Engine
from mooring.core.engine.history import Entry
from mooring.core.engine.why.condition import rack_of
from mooring.core.model.cluster import Node
from mooring.core.model.reasons import State
from mooring.process.http import pagerows as rows
from mooring.process.http.queuerows import counts, row, standings
from mooring.process.http.served_replica import Find
from mooring.process.replica import Replica

log = structlog.get_logger()

PAGE: Final = 200
NODES_PER_SLICE: Final = 250
PODS_PER_SLICE: Final = 10_000
#: A row counts the pods of its node, by workload.
ROWS_PER_SLICE: Final = 10
#: Above this many nodes they are walked at every fourth tick only.
MANY_NODES: Final = 1000
BUCKET_S: Final = 300.0
BUCKETS: Final = 12
DAY_S: Final = 86_400.0
DIGITS: Final = re.compile(r"\d+")


class Table(msgspec.Struct):
    """Rows by id in order; `total` counts those beyond the page too."""

    rows: dict[str, Any] = msgspec.field(default_factory=dict)
    total: int = 0
    sums: dict[str, Any] = msgspec.field(default_factory=dict)


class Frame(msgspec.Struct):
    as_of: float
    head: dict[str, Any]
    tables: dict[str, Table]


class Framer:
    """Builds frames of one replica; in the demo the replica behind it may change between two frames."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._replica: Replica | None = None
        self._told = 0
        self._tick = 0
        self._chronicle = Chronicle()
        self._nodes = Table()
        self._racks = Table()
        #: Every node by name, those with news first: for pages of the whole list.
        self.node_names: list[str] = []
        #: Every rack, those with news first.
        self.all_racks: list[rows.RackRow] = []

    def listen(self) -> None:
        """Take in what is new in the story; called at every tick, watched or not."""
        replica = self._find()
        if replica is None:
            return
        if replica is not self._replica:
            self._replica, self._told = replica, 0
        story = replica.engine.story
        fresh = min(story.count - self._told, len(story.timeline))
        if fresh > 0:
            self._chronicle.take(list(story.timeline)[-fresh:])
        self._told = story.count

    async def build(self) -> Frame | None:
        """None: no replica runs just now."""
        self.listen()
        replica = self._find()
        if replica is None:
            return None
        engine, now = replica.engine, replica.shell.now()
        queue = _queue(engine)
        await asyncio.sleep(0)
        stores = _stores(engine)
        await asyncio.sleep(0)
        if self._tick % 4 == 0 or len(self.node_names) < MANY_NODES:
            await self._walk(replica)
        self._tick += 1
        head = _head(replica, queue, self._chronicle.moved(now))
        timeline = Table(self._chronicle.rows(), len(self._chronicle), {"bars": self._chronicle.bars(now)})
        tables = {
            "queue": queue,
            "stores": stores,
            "nodes": self._nodes,
            "racks": self._racks,
            "timeline": timeline,
        }
        return Frame(now, head, tables)

    async def _walk(self, replica: Replica) -> None:
        world = replica.world
        counts: Counter[str] = Counter()
        news: list[Node] = []
        quiet: list[str] = []
        states: list[tuple[str, str]] = []
        at_address: dict[str, str] = {}
        for number, node in enumerate(list(world.nodes()), 1):
            state = rows.news_of(node)[0]
            counts[rows.class_word(world.node_class(node.name), state)] += 1
            if state == "ok":
                quiet.append(node.name)
            else:
                news.append(node)
            states.append((rack_of(node), state))
            at_address[node.internal_ip or node.name] = state
            if number % NODES_PER_SLICE == 0:
                await asyncio.sleep(0)
        unplaced = 0
        for number, pod in enumerate(list(world.pods()), 1):
            if not pod.node and pod.active:
                unplaced += 1
            if number % PODS_PER_SLICE == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        news.sort(key=lambda n: (n.ready == "True", by_number(n.name)))
        shown: dict[str, Any] = {}
        for number, node in enumerate(news[:PAGE], 1):
            shown[node.name] = whole(lambda n=node: rows.node_row(world, n), node.name)  # type: ignore[misc]
            if number % ROWS_PER_SLICE == 0:
                await asyncio.sleep(0)
        self._nodes = Table(shown, len(news) + len(quiet), {**counts, "unplaced": unplaced, "quiet": len(quiet)})
        await asyncio.sleep(0)
        self.node_names = [n.name for n in news] + sorted(quiet, key=by_number)
        await asyncio.sleep(0)
        machines = world.machines()
        racks = rows.rack_rows(rows.machine_states(machines, at_address) if machines else states)
        loud = [r for r in racks if r.glyphs]
        self.all_racks = loud + [r for r in racks if not r.glyphs]
        page = {r.id: r for r in self.all_racks[:PAGE]}
        self._racks = Table(page, len(racks), {"quiet": len(racks) - len(loud)})


class Chronicle:
    """The newest entries of the story, sums of the last hour and what was moved today. Bounded, whatever happens."""

    def __init__(self, most: int = PAGE) -> None:
        self._newest: deque[tuple[int, Entry]] = deque(maxlen=most)
        self._count = 0
        self._buckets: dict[tuple[str, int], int] = {}
        self._moved: dict[int, int] = {}

    def __len__(self) -> int:
        return self._count

    def take(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._count += 1
            self._newest.append((self._count, entry))
            if entry.verb in {"promoted", "finished"} and entry.source:
                bucket = (entry.source, int(entry.at // BUCKET_S))
                self._buckets[bucket] = self._buckets.get(bucket, 0) + (entry.verb == "promoted")
            if entry.verb == "finished":
                day = int(entry.at // DAY_S)
                self._moved[day] = self._moved.get(day, 0) + 1
        while len(self._moved) > 2:
            del self._moved[min(self._moved)]

    def moved(self, now: float) -> int:
        return self._moved.get(int(now // DAY_S), 0)

    def bars(self, now: float) -> dict[str, list[int]]:
        """Source → operators begun in each five minutes of the last hour, oldest first."""
        last = int(now // BUCKET_S)
        self._buckets = {key: n for key, n in self._buckets.items() if key[1] > last - BUCKETS}
        bars: dict[str, list[int]] = {}
        for (source, bucket), n in sorted(self._buckets.items()):
            if bucket <= last:
                bars.setdefault(source, [0] * BUCKETS)[bucket - last - 1] += n
        return bars

    def rows(self) -> dict[str, Any]:
        return {
            str(number): {
                "id": str(number),
                "at": e.at,
                "op": e.subjects[0].removeprefix("operator/") if e.subjects and e.subjects[0].startswith("op") else "",
                "verb": e.verb,
                "source": e.source,
                "reason": e.reason,
                "text": e.text,
                "subject": e.subjects[0] if e.subjects else "",
                "about": e.subjects[1] if len(e.subjects) > 1 else "",
            }
            for number, e in reversed(self._newest)
        }


@lru_cache(maxsize=20_000)
def by_number(name: str) -> str:
    """A key that puts n2 before n10."""
    return DIGITS.sub(lambda digits: digits[0].zfill(6), name)


def whole(make: Callable[[], Any], row_id: str) -> Any:
    """One bad row shows a question mark; it never breaks the page."""
    try:
        return make()
    except Exception:
        log.exception("page.bad-row", row=row_id)
        return {"id": row_id, "state": "?"}


def _queue(engine: Engine) -> Table:
    found = standings(engine)
    shown = {
        one.id: whole(lambda o=one: row(engine, o, engine.queue.why(o.id)), one.id)  # type: ignore[misc]
        for one in found[:PAGE]
    }
    return Table(shown, len(found), counts(found))


def all_stores(engine: Engine) -> list[Any]:
    """Every store, the fullest first."""
    world = engine.world
    waiting: dict[str, list[str]] = {}
    reserved: Counter[str] = Counter()
    for entry in engine.queue.waiting_entries():
        for target, cost in entry.op.cost.items():
            if target.startswith("store/"):
                waiting.setdefault(target, []).append(entry.op.id)
                if not entry.parked:
                    reserved[target] += cost
    found: list[Any] = []
    for tc in sorted(world.tidb_clusters(), key=lambda t: t.key):
        view = world.pd(tc.key)
        pods = {pod.name: pod for pod in world.tidb_pods(tc.key, "tikv")}
        for store in view.stores if view is not None else ():
            if store.state != "Tombstone":
                made = whole(
                    lambda t=tc, s=store, p=pods: rows.store_row(engine, t, s, p.get(s.pod_name), waiting, reserved),  # type: ignore[misc]
                    f"{tc.key}/{store.id}",
                )
                found.append(made)
    found.sort(key=_fullness)
    return found


def _stores(engine: Engine) -> Table:
    found, world = all_stores(engine), engine.world
    page = {(r["id"] if isinstance(r, dict) else r.id): r for r in found[:PAGE]}
    lost = {str(tc.key): words for tc in world.tidb_clusters() if (words := world.pd_lost(tc.key))}
    return Table(page, len(found), {"lost": lost})


def _fullness(row: Any) -> tuple[float, str]:
    if isinstance(row, dict):
        return (-2.0, row["id"])
    return (-(row.used / row.limit) if row.limit else float(-row.used), row.id)


def silent_s(replica: Replica) -> float:
    """For how long the API server has not been heard; 0.0 while it is. A frame may be new and what it shows old."""
    informers = replica.informers.informers
    # A quiet cluster says nothing for a minute and is well: only when every watch has failed are we cut off.
    if not informers or not all(i.stats.last_error for i in informers):
        return 0.0
    return round(replica.clock.monotonic() - max(i.stats.heard_at for i in informers), 1)


def _head(replica: Replica, queue: Table, moved: int) -> dict[str, Any]:
    engine = replica.engine
    first = next(iter(queue.rows.values()), None)
    blocked = queue.sums.get(State.BLOCKED, 0)
    needs, since, deadline = "", None, None
    if blocked and isinstance(first, rows.QueueRow):
        who = f"op {first.op} blocked" if first.op else f"{first.what} blocked"
        needs = f"{who}: {first.waiting_on or first.detail}"
        since, deadline = first.since, first.deadline
    return {
        "identity": replica.identity,
        "leader": replica.elector.holder or "",
        "leading": engine.leading,
        "deciding": engine.deciding,
        "not_ready": replica.not_ready(),
        "features": sorted(engine.on),
        "backlog": replica.shell.backlog,
        "silent_s": silent_s(replica),
        "needs": blocked,
        "needs_words": needs,
        "needs_since": since,
        "needs_until": deadline,
        "waiting": queue.sums.get(State.WAITING, 0),
        "running": queue.sums.get(State.MOVING, 0),
        "moved": moved,
    }
