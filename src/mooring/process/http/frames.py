"""Frames: what the page shows, built once per tick for all who watch.

A frame is a small value: a head, and tables of rows by id (the map, the moves on it, five lists). Walking 5,000 nodes
is done in slices, with the loop given back in between, so that deciding and admission do not wait for a picture.
What is large is summed up here; the rest of a list is fetched page by page.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import structlog

from mooring.capabilities.registry import descriptors
from mooring.core.engine.engine import Engine
from mooring.core.engine.history import HistoryEntry
from mooring.core.engine.standing import standings
from mooring.core.engine.why.condition import rack_of
from mooring.core.model.cluster import Node
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import driver_of
from mooring.core.model.reasons import State
from mooring.core.world.leaders import LeaderViews
from mooring.process.http import pagerows as rows
from mooring.process.http.mapview import MapRow, MapRows, leaving
from mooring.process.http.moves import Moves, pods_moving
from mooring.process.http.pagerows import by_number
from mooring.process.http.queuerows import counts, row
from mooring.process.http.served_replica import Find
from mooring.process.http.verdict import Interrupted, causes, sentence
from mooring.process.replica import Replica

log = structlog.get_logger()

PAGE: Final = 200
NODES_PER_SLICE: Final = 250
#: A row counts the pods of its node, by workload.
ROWS_PER_SLICE: Final = 10
#: Above this many nodes they are walked at every fourth tick only.
MANY_NODES: Final = 1000
BUCKET_S: Final = 300.0
BUCKETS: Final = 12
DAY_S: Final = 86_400.0
#: The trend: six hours in quarters of an hour.
TREND_S: Final = 900.0
TREND: Final = 24
WORTH_S: Final = 10.0


class FrameTable(msgspec.Struct):
    """Rows by id in order; `total` counts those beyond the page too."""

    rows: dict[str, Any] = msgspec.field(default_factory=dict)
    total: int = 0
    sums: dict[str, Any] = msgspec.field(default_factory=dict)


class Frame(msgspec.Struct):
    as_of: float
    head: dict[str, Any]
    tables: dict[str, FrameTable]


class Framer:
    """Builds frames of one replica; in the demo the replica behind it may change between two frames."""

    def __init__(self, find: Find, *, cluster: str = "", beside: Callable[[], Mapping[str, Any]] = dict) -> None:
        """`cluster`: its name, for the header. `beside`: what else the head says (the act of the demo)."""
        self._find = find
        self._cluster = cluster
        self.beside = beside
        self._told = 0
        self._tick = 0
        self._begun = StartCounter()
        self._trend = Trend()
        self._valued = -math.inf, ""
        self.moves = Moves()
        self._map: MapRows | None = None
        self._nodes = FrameTable()
        self._racks = FrameTable()
        #: Every node by name, those with news first: for pages of the whole list.
        self.node_names: list[str] = []
        #: Every rack, those with news first.
        self.all_racks: list[rows.RackRow] = []

    def listen(self) -> Replica | None:
        """Take in what is new in the history; called at every tick, watched or not. The replica that runs, if any."""
        replica = self._find()
        if replica is None:
            return None
        if self._map is None or replica.world is not self._map.world:
            self._told, self._map = 0, MapRows(replica.world, replica.engine.departures)
            self.moves.follow(replica.engine)
        history = replica.engine.history
        fresh = min(history.count - self._told, len(history.timeline))
        if fresh > 0:
            self._begun.take(list(history.timeline)[-fresh:])
        self._told = history.count
        return replica

    async def build(self) -> Frame | None:
        """None: no replica runs just now."""
        replica, on_map = self.listen(), self._map
        if replica is None or on_map is None:
            return None
        engine, now = replica.engine, replica.shell.now()
        queue = _queue(engine)
        await asyncio.sleep(0)
        stores = _stores(engine)
        await asyncio.sleep(0)
        if self._tick % 4 == 0 or len(self.node_names) < MANY_NODES:
            await self._walk(replica, on_map)
        self._tick += 1
        tiles = await on_map.refresh(pods_moving(engine.running.values()))
        moves = self.moves.drawn(engine)
        head = _head(replica, queue, self._begun.moved(now))
        self._trend.take(now, head, tiles)
        head["verdict"] = sentence(head, _interrupted(tiles), now)
        head["cluster"] = self._cluster or replica.config.cluster_name or replica.config.context
        head.update(self.beside())
        tables = {
            "map": FrameTable(tiles, len(tiles), on_map.sums()),
            "moves": FrameTable(moves, len(moves)),
            "queue": queue,
            "stores": stores,
            "nodes": self._nodes,
            "racks": self._racks,
            "timeline": FrameTable(self.moves.rows(), len(self.moves), self._sums(now)),
        }
        return Frame(now, head, tables)

    def _sums(self, now: float) -> dict[str, Any]:
        return {"bars": self._begun.bars(now), "trend": self._trend.told(now)}

    async def _walk(self, replica: Replica, on_map: MapRows) -> None:
        world = replica.world
        counts: Counter[str] = Counter()
        news: list[Node] = []
        quiet: list[str] = []
        at_address: dict[str, tuple[str, str]] = {}
        for number, node in enumerate(list(world.nodes()), 1):
            state = rows.news_of(node, replica.engine.departures)[0]
            counts[rows.class_word(world.node_class(node.name), state)] += 1
            if state not in {"ok", "leaving"}:
                counts[state] += 1
            if state == "ok":
                quiet.append(node.name)
            else:
                news.append(node)
            at_address[node.internal_ip or node.name] = (rack_of(node), state)
            if number % NODES_PER_SLICE == 0:
                await asyncio.sleep(0)
        news.sort(key=lambda n: (n.ready == "True", by_number(n.name)))
        shown: dict[str, Any] = {}
        for number, node in enumerate(news[:PAGE], 1):
            shown[node.name] = row_or_defect(lambda n=node: rows.node_row(replica.engine, n), node.name)  # type: ignore[misc]
            if number % ROWS_PER_SLICE == 0:
                await asyncio.sleep(0)
        sums = {**counts, "unplaced": on_map.unplaced, "quiet": len(quiet), "worth": self._worth(replica)}
        self._nodes = FrameTable(shown, len(news) + len(quiet), sums)
        await asyncio.sleep(0)
        self.node_names = [n.name for n in news] + sorted(quiet, key=by_number)
        await asyncio.sleep(0)
        racks = rows.rack_rows(rows.machine_states(world.machines(), at_address))
        loud = [r for r in racks if r.glyphs]
        self.all_racks = loud + [r for r in racks if not r.glyphs]
        page = {r.id: r for r in self.all_racks[:PAGE]}
        self._racks = FrameTable(page, len(racks), {"quiet": len(racks) - len(loud)})

    def _worth(self, replica: Replica) -> str:
        """What the features say that they are worth; all their notes are read for it, so seldom."""
        at, known = self._valued
        if replica.shell.now() < at + WORTH_S:
            return known
        said = []
        for one in descriptors():
            if one.worth is not None:
                notes = {key: note for (name, key), note in replica.engine.notes.items() if name == one.name}
                said.append(one.worth(notes, replica.config.policy(one.policy)))
        self._valued = replica.shell.now(), "; ".join(filter(None, said))
        return self._valued[1]


class StartCounter:
    """What each source began in the last hour, and what was moved today. Bounded."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, int], int] = {}
        self._moved: dict[int, int] = {}

    def take(self, entries: Iterable[HistoryEntry]) -> None:
        for entry in entries:
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


class Trend:
    """What the last hours were like: in each quarter of an hour the moves that ended, the most that waited and the most
    that was blocked at a time, and the share of pods on spot nodes. A quarter without frames is left out by None."""

    def __init__(self) -> None:
        self._quarters: dict[int, list[int]] = {}
        self._ended: tuple[int, int] | None = None

    def take(self, now: float, head: Mapping[str, Any], tiles: Mapping[str, MapRow]) -> None:
        quarter, day = int(now // TREND_S), int(now // DAY_S)
        known, moved = self._ended or (day, head["moved"]), head["moved"]
        ended = max(0, moved - known[1]) if known[0] == day else moved
        self._ended = (day, moved)
        pods = sum(len(tile.cells) for tile in tiles.values())
        on_spot = sum(len(tile.cells) for tile in tiles.values() if tile.cls == "spot")
        before = self._quarters.get(quarter, [0, 0, 0, 0])
        spot = round(100 * on_spot / pods) if pods else 0
        self._quarters[quarter] = [
            before[0] + ended,
            max(before[1], head["waiting"]),
            max(before[2], head["needs"]),
            spot,
        ]
        while len(self._quarters) > TREND:
            del self._quarters[min(self._quarters)]

    def told(self, now: float) -> dict[str, list[int | None]]:
        """Name → quarters, oldest first, from the first that was seen on."""
        last = int(now // TREND_S)
        seen = [quarter for quarter in self._quarters if last - TREND < quarter <= last]
        span = range(min(seen), last + 1) if seen else range(0)
        rows = [self._quarters.get(quarter) for quarter in span]
        names = ("moves", "waiting", "blocked", "spot")
        return {name: [row[k] if row else None for row in rows] for k, name in enumerate(names)}


def row_or_defect(make: Callable[[], Any], row_id: str) -> Any:
    """One bad row shows a question mark; it never breaks the page."""
    try:
        return make()
    except Exception:
        log.exception("page.bad-row", row=row_id)
        return {"id": row_id, "state": "?"}


def _queue(engine: Engine) -> FrameTable:
    found = standings(engine)
    shown = {
        one.id: row_or_defect(lambda o=one: row(engine, o, engine.queue.why(o.id)), one.id)  # type: ignore[misc]
        for one in found[:PAGE]
    }
    sums = counts(found)
    if State.BLOCKED in sums:
        sums["causes"] = causes(found)
    return FrameTable(shown, len(found), sums)


def _interrupted(tiles: Mapping[str, MapRow]) -> Interrupted:
    there = [tile for tile in tiles.values() if tile.state == "interrupted"]
    return Interrupted(
        nodes=len(there),
        pods=sum(leaving(tile) for tile in there),
        until=min((tile.until for tile in there if tile.until is not None), default=None),
    )


def all_stores(engine: Engine) -> list[Any]:
    """Every store, and every member of another system with leaders; the fullest first."""
    world = engine.world
    waiting: dict[str, list[str]] = {}
    reserved: Counter[str] = Counter()
    for entry in engine.queue.records.waiting():
        for target, cost in entry.operator.cost.items():
            if target.startswith("store/"):
                waiting.setdefault(target, []).append(entry.operator.id)
                if not entry.parked:
                    reserved[target] += cost
    found: list[Any] = []
    for tc in sorted(world.tidb_clusters(), key=lambda t: t.key):
        view = world.pd(tc.key)
        pods = {pod.name: pod for pod in world.tidb_pods(tc.key, "tikv")}
        for store in view.stores if view is not None else ():
            if store.state != "Tombstone":
                made = row_or_defect(
                    lambda t=tc, s=store, p=pods: rows.store_row(engine, t, s, p.get(s.pod_name), waiting, reserved),  # type: ignore[misc]
                    f"{tc.key}/{store.id}",
                )
                found.append(made)
    found += _members(engine)
    found.sort(key=_fullness)
    return found


def _members(engine: Engine) -> Iterator[Any]:
    views, world = engine.world.indexes.by_class.get(LeaderViews), engine.world
    for key, look in sorted(views.kept() if isinstance(views, LeaderViews) else ()):
        workload = world.workload(Kind.STATEFUL_SET, key)
        for member in look.view.members if look.view is not None and driver_of(workload) else ():
            yield row_or_defect(
                lambda w=workload, m=member, lost=look.lost: rows.member_row(engine, w, m, lost),  # type: ignore[misc]
                f"{key}/{member.pod}",
            )


def _stores(engine: Engine) -> FrameTable:
    found, world = all_stores(engine), engine.world
    page = {(r["id"] if isinstance(r, dict) else r.id): r for r in found[:PAGE]}
    lost = {str(tc.key): words for tc in world.tidb_clusters() if (words := world.pd_lost(tc.key))}
    return FrameTable(page, len(found), {"lost": lost})


def _fullness(row: Any) -> tuple[float, str]:
    if isinstance(row, dict):
        return (-2.0, row["id"])
    return (-(row.used / row.limit) if row.limit else float(-row.used), row.id)


def silent_s(replica: Replica) -> float:
    """For how long the API server has not answered; 0.0 while it does. A frame may be new and what it shows old."""
    informers = replica.informers.informers
    # A quiet cluster may send no event for a minute: only when every watch has failed is the connection lost.
    if not informers or not all(i.stats.last_error for i in informers):
        return 0.0
    return round(replica.clock.monotonic() - max(i.stats.heard_at for i in informers), 1)


def _head(replica: Replica, queue: FrameTable, moved: int) -> dict[str, Any]:
    engine = replica.engine
    first = next(iter(queue.rows.values()), None)
    blocked = queue.sums.get("causes", 0)
    waits = next((r for r in queue.rows.values() if isinstance(r, rows.QueueRow) and r.state == State.WAITING), None)
    needs, remedy, since, deadline = "", "", None, None
    if blocked and isinstance(first, rows.QueueRow):
        needs = f"{first.about or first.what} blocked: {first.waiting_on or first.detail}"
        remedy, since, deadline = first.remedy, first.since, first.deadline
    return {
        "identity": replica.identity,
        "leader": replica.elector.holder or "",
        "leading": engine.leading,
        "deciding": engine.deciding,
        "not_ready": replica.not_ready(),
        "features": sorted(engine.on),
        "observing": sorted(engine.observing),
        "paused": {name: msgspec.to_builtins(pause) for name, pause in sorted(engine.holds.pauses.items())},
        "backlog": replica.shell.backlog,
        "silent_s": silent_s(replica),
        "needs": blocked,
        "needs_words": needs,
        "needs_do": remedy,
        "needs_about": first.subject if needs and isinstance(first, rows.QueueRow) else "",
        "needs_since": since,
        "needs_until": deadline,
        "waiting": queue.sums.get(State.WAITING, 0),
        "waiting_words": waits.waiting_on if waits is not None else "",
        "running": queue.sums.get(State.MOVING, 0),
        "moved": moved,
    }
