"""The state of PD: what stores have reported, what it has stored, and its coordinator.

Two kinds of memory, which is what makes a restart dangerous:

    kept through a restart      stores, regions and their peers, the evict-leader list
    lost in a restart           who leads each region, running operators, pauses, whether enough is known to schedule

So for a while after a restart every store is Up with its regions and no leader at all, the list of evicted stores is
not there, and no scheduler runs: the false zero. It ends when the stores have reported and the coordinator has looked.
Seen on a real one, and played here:
- When the coordinator begins, balance-leader may act once before evict-leader counts: a few leaders come back to a
  store that was empty, and leave again.
- Regions are stored some seconds late. Killed before that, PD comes back without them: no region, no leader, and at
  once the list of evicted stores, for nothing is left to wait for.

Heartbeats of stores are not events here: the last one is computed from when the store began to report, so that an idle
cluster costs nothing.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from mooring.core.model.tidb import Region, Store
from mooring_lab.cluster.clock import Timeline, Timer
from mooring_lab.cluster.pd import schedulers
from mooring_lab.cluster.pd.heard import HeardRegions
from mooring_lab.cluster.pd.operators import Operators, StoredOperator
from mooring_lab.cluster.pd.placement import PlacementSettings, is_low_on_space, rule_checker
from mooring_lab.cluster.pd.settings import PdSettings
from mooring_lab.cluster.pd.stores import row
from mooring_lab.cluster.pd.tikv import RaftGroup, Tikv, TikvStore
from mooring_lab.cluster.randomness import SeededRandomness


class _Coordinator:
    """What the coordinator looks at next, and when."""

    def __init__(self) -> None:
        #: Evicted stores take no leaders; not yet in the coordinator's first moment.
        self.evict_counts = True
        self.collecting: Timer | None = None
        self.tick: Timer | None = None
        self.balance_at = 0.0
        self.balance_tick: Timer | None = None


class _Streams:
    """Between this process and the stores."""

    def __init__(self, begun_at: float) -> None:
        #: Counted up with each process: what was sent to an earlier one is dropped.
        self.life = 0
        self.listening = True
        #: Stores whose stream is not back yet: what they say does not arrive.
        self.deaf_to: set[int] = set()
        self.begun_at = begun_at


class PdServer:
    def __init__(self, timeline: Timeline, randomness: SeededRandomness, settings: PdSettings) -> None:
        self.timeline = timeline
        self.randomness = randomness
        self.settings = settings
        self.tikv = Tikv(timeline, randomness.fork("tikv"), settings)
        self.tikv.on_change = self._report
        self.operators = Operators(timeline, randomness.fork("operators"), settings, self.tikv)
        self.operators.on_end = self._ended
        self.operators.on_heard = lambda group_id: self.hear([group_id])
        # Stored.
        self.evicting: dict[int, None] = {}
        #: (type, id, since, description) of who holds the maintenance lock.
        self.lock: tuple[str, str, float, str] | None = None
        self.evict_batch = settings.evict_batch
        #: The one store that PD empties by itself because it is stopping.
        self.stopping: int | None = None
        #: Store → Offline or Tombstone; all others are Up as far as people asked.
        self.asked_state: dict[int, str] = {}
        self.limits: dict[str, int] = {"leader": settings.leader_limit}
        self.placement = PlacementSettings(settings.replicas)
        #: Scheduler → (paused at, resumes at), wall clock.
        self.paused: dict[str, tuple[float, float]] = {}
        # In memory.
        self.heard = HeardRegions()
        self.coordinator_up = False
        self._coordinator = _Coordinator()
        self._streams = _Streams(timeline.monotonic())

    @property
    def cache(self) -> dict[int, Region]:
        return self.heard.by_id

    # ── What it has heard ─────────────────────────────────────────────────────────────────────────────────────────

    def _report(self, group: RaftGroup) -> None:
        """The group's leader tells PD, a moment later."""
        group_id = group.id
        self.timeline.after(self.randomness.uniform(*self.settings.report_s), lambda: self.hear([group_id]))

    def hear(self, group_ids: Iterable[int]) -> None:
        """Take in the reports of these groups' leaders. A PD that is away gets none, and none comes by a broken
        stream."""
        if not self._streams.listening:
            return
        for group_id in group_ids:
            group, known = self.tikv.groups.get(group_id), self.cache.get(group_id)
            if group is not None and group.leader in self._streams.deaf_to:
                continue
            if group is None:
                if known is not None:
                    self.heard.forget(known)
                continue
            if not group.leader:
                continue  # no leader reports it
            if known is not None:
                self.heard.forget(known)
            region = group.region()
            self.heard.learn(region)
            self._suspect(region)
        if self.coordinator_up:
            self.kick()
        else:
            self._collect_later()

    def _suspect(self, region: Region) -> None:
        """Have it checked against the rules. Without any of its own only for what was left behind half way."""
        if self.placement.checked or any(p.role == "Learner" for p in region.peers):
            self.heard.to_check[region.id] = None

    def store_came(self) -> None:
        """It may take the replicas that regions miss."""
        if self.placement.checked:
            self.heard.to_check.update(dict.fromkeys(self.cache))
        self.kick()

    def _ended(self, operator: StoredOperator) -> None:
        region = self.cache.get(operator.region_id)
        if region is not None:
            self._suspect(region)
        self.kick()

    def led_by(self, store_id: int) -> list[int]:
        return list(self.heard.led.get(store_id, ()))

    def held_by(self, store_id: int) -> list[int]:
        return list(self.heard.held.get(store_id, ()))

    # ── Stores ────────────────────────────────────────────────────────────────────────────────────────────────────

    def last_heartbeat(self, store: TikvStore) -> float:
        """Monotonic. One at once when it starts, then every interval, each store at its own phase."""
        end = self.timeline.monotonic() if store.until is None else store.until
        every = self.settings.store_heartbeat_s
        phase = (store.id * 0.618034 * every) % every
        beats = math.floor((end - store.since - phase) / every)
        return store.since if beats < 0 else store.since + phase + beats * every

    def state_of(self, store: TikvStore) -> str:
        asked = self.asked_state.get(store.id)
        if asked is not None:
            return asked
        silence = self.timeline.monotonic() - self.last_heartbeat(store)
        if silence > self.settings.down_after_s:
            return "Down"
        return "Disconnected" if silence > self.settings.disconnected_after_s else "Up"

    def is_up(self, store_id: int) -> bool:
        store = self.tikv.stores.get(store_id)
        return store is not None and self.state_of(store) == "Up"

    def up_stores(self) -> list[int]:
        return [s for s in sorted(self.tikv.stores) if self.is_up(s)]

    def leaving_stores(self) -> list[int]:
        return [s.id for s in self.tikv.stores.values() if self.state_of(s) in ("Offline", "Down")]

    def takes_peers(self, store_id: int) -> bool:
        return not is_low_on_space(self.placement, self.tikv.stores[store_id])

    def takes_leaders(self, store_id: int) -> bool:
        return not self.refuses_leaders(store_id) and self.is_up(store_id)

    def refuses_leaders(self, store_id: int) -> bool:
        return store_id == self.stopping or (self._coordinator.evict_counts and store_id in self.evicting)

    def store(self, store: TikvStore) -> Store:
        return row(self, store)

    def stores(self) -> tuple[Store, ...]:
        """Without Tombstones, as PD lists them."""
        found = (self.tikv.stores[s] for s in sorted(self.tikv.stores))
        return tuple(self.store(s) for s in found if self.asked_state.get(s.id) != "Tombstone")

    # ── Scheduling ────────────────────────────────────────────────────────────────────────────────────────────────

    def scheduler_names(self) -> tuple[str, ...]:
        if not self.coordinator_up:
            return ()
        return (*schedulers.DEFAULTS, schedulers.EVICT_LEADER) if self.evicting else schedulers.DEFAULTS

    def evict_list(self) -> tuple[int, ...] | None:
        """None: there is no such scheduler now, whether PD is starting or none was requested."""
        return tuple(sorted(self.evicting)) if self.coordinator_up and self.evicting else None

    def is_paused(self, name: str) -> bool:
        pause = self.paused.get(name)
        return pause is not None and pause[1] > self.timeline.now()

    def pause(self, name: str, seconds: int) -> None:
        now = self.timeline.now()
        self.paused[name] = (now, now + seconds)
        if seconds > 0:
            self.timeline.after(seconds, self.kick)
        self.kick()

    def kick(self) -> None:
        """Something changed: look soon what is to be scheduled. Without a change nothing is looked at."""
        if self._coordinator.tick is None and self.coordinator_up:
            self._coordinator.tick = self.timeline.after(self.settings.schedule_every_s, self._schedule)

    def _schedule(self) -> None:
        self._coordinator.tick = None
        if not self.coordinator_up:
            return
        self._bury()
        if self.placement.halted:
            return
        self._check()
        if not self._coordinator.evict_counts:
            for op in list(schedulers.balance_leaders(self)):
                self.operators.start(op)
            self._coordinator.evict_counts = True
            self.kick()
            return
        leaders, regions = self.limits["leader"], self.settings.region_limit
        if self.evicting:
            self._run(schedulers.EVICT_LEADER, lambda pd: schedulers.evict_leaders(pd, pd.evicting), "leader", leaders)
        self.stopping = schedulers.next_stopping(self)
        if (store := self.stopping) is not None:
            name = schedulers.EVICT_STOPPING
            self._run(name, lambda pd: schedulers.evict_leaders(pd, (store,), name), "leader", leaders)
        if self.timeline.monotonic() >= self._coordinator.balance_at:
            self._coordinator.balance_at = self.timeline.monotonic() + self.settings.balance_every_s
            self._run(schedulers.BALANCE_LEADER, schedulers.balance_leaders, "leader", leaders)
            self._run(schedulers.BALANCE_REGION, schedulers.balance_regions, "region", regions)
        elif self._coordinator.balance_tick is None:
            self._coordinator.balance_tick = self.timeline.at(self._coordinator.balance_at, self._balance_again)

    def _check(self) -> None:
        """PD's checkers: no pause of a scheduler stops them."""
        for op in list(schedulers.leave_joint(self)):
            self.operators.start(op)
        for op in schedulers.replace_leaving(self):
            self.operators.start(op)
        checked, self.heard.to_check = self.heard.to_check, {}
        for region_id in checked:
            region = self.cache.get(region_id)
            if region_id in self.operators.running:
                self.heard.to_check[region_id] = None  # once that has ended
                continue
            for op in rule_checker(self, region) if region is not None else ():
                self.operators.start(op)

    def _balance_again(self) -> None:
        self._coordinator.balance_tick = None
        self.kick()

    def _run(self, name: str, propose: Callable[["PdServer"], Iterator[StoredOperator]], kind: str, limit: int) -> None:
        if self.is_paused(name) or self.operators.count(kind) >= limit:
            return
        # Each begins before the next is looked for: balance-region counts what runs, and stops at its limit.
        for op in propose(self):
            self.operators.start(op)

    def _bury(self) -> None:
        """An Offline store with no region left is a Tombstone."""
        for store_id, asked in list(self.asked_state.items()):
            if asked == "Offline" and not self.heard.region_counts.get(store_id):
                self.asked_state[store_id] = "Tombstone"

    # ── Its life ──────────────────────────────────────────────────────────────────────────────────────────────────

    def forget(self) -> None:
        """The process ended: what was in memory is gone, and commands to it are lost."""
        self._streams.life += 1
        self._streams.listening = False
        self.coordinator_up = False
        self.operators.forget_all()
        self.paused.clear()

    def begin(self, *, leaders_known: bool, regions_known: bool = True) -> None:
        """A process takes over. A follower that becomes leader knows the leaders too: they were synced to it."""
        self._streams.begun_at = self.timeline.monotonic()
        self._streams.listening = True
        if not regions_known:
            self.heard.forget_regions()
            self.coordinator_up = True
            self._coordinator.evict_counts = False
        if not leaders_known:
            self.heard.forget_leaders()
        elif self.cache:
            self.coordinator_up = True
            self._coordinator.evict_counts = not self.evicting
            self.kick()
        life = self._streams.life
        self._streams.deaf_to = set(self.tikv.stores)
        for store in self.tikv.stores.values():
            delay = self.randomness.uniform(*self.settings.reconnect_s)
            self.timeline.after(delay, partial(self._reconnect, store, life))
        self._collect_later()

    def silence(self, store: TikvStore, *, silent: bool) -> None:
        """The connection between store and PD is cut, or back; the store goes on leading what it leads."""
        if silent:
            store.until = self.timeline.monotonic()
            self._streams.deaf_to.add(store.id)
        elif store.alive:
            store.since, store.until = self.timeline.monotonic(), None
            self._streams.deaf_to.discard(store.id)
            self.hear(list(self.tikv.led[store.id]))

    def _reconnect(self, store: TikvStore, life: int) -> None:
        if life == self._streams.life:
            self._streams.deaf_to.discard(store.id)
            self.hear(list(self.tikv.led[store.id]))

    def _collect_later(self) -> None:
        if self._coordinator.collecting is None:
            self._coordinator.collecting = self.timeline.after(self.settings.collect_every_s, self._collect)

    def _collect(self) -> None:
        self._coordinator.collecting = None
        if not self._streams.listening or not self.cache or self.coordinator_up:
            return
        waited = self.timeline.monotonic() - self._streams.begun_at
        enough = self.settings.collect_share * len(self.cache)
        if self.heard.with_leader >= enough or waited >= self.settings.collect_at_most_s:
            self.coordinator_up = True
            self._coordinator.evict_counts = not self.evicting
            self.kick()
        else:
            self._collect_later()
