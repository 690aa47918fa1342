"""Prometheus metrics. Every name and its labels stand in one table; no pod or node is ever a label, and a store only
while something is under way on it.

A reader that asks for a series before anything happened finds it at 0: those with a fixed set of values are created
at the start.
"""

from collections import Counter as Counted
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from mooring.capabilities.registry import descriptors, sources
from mooring.core.engine.engine import Engine
from mooring.core.engine.standing import Standing, needs_you
from mooring.core.model.decision import OperatorRecord
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import BLOCKED_REASONS, Reason, State
from mooring.core.queue.why import why_all

#: name → (help, label names)
COUNTERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "mooring_writes_total": ("Writes to the outside, by verb and outcome", ("verb", "outcome")),
    "mooring_operators_total": ("Operators that ended, by source, how and reason", ("source", "how", "reason")),
    "mooring_admissions_total": ("Answers to AdmissionReviews, by class given or reason", ("outcome",)),
    "mooring_evictions_total": ("Answers to evictions: held, or why they passed", ("outcome",)),
    "mooring_events_lost_total": ("Kubernetes Events that could not be written", ("why",)),
    "mooring_extender_requests_total": ("What schedulers asked, by verb and answer", ("verb", "reason")),
    "mooring_history_entries_total": ("What happened, by verb", ("verb",)),
    "mooring_defects_total": ("Objects left alone because of a defect in Mooring", ()),
}
GAUGES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "mooring_operators_waiting": (
        "What waits in the queue, or is blocked until a person acts, by the one reason that counts",
        ("source", "state", "reason"),
    ),
    "mooring_needs_you": ("Operators and objects that are blocked until a person acts, or refused as configured", ()),
    "mooring_would": ("Operators that features which only observe would propose now", ("source",)),
    "mooring_deadlines_at_risk": ("Operators that still wait with less than a minute to their deadline", ()),
    "mooring_operators_running": ("Operators that run", ("source",)),
    "mooring_leading": ("1 while this replica holds the lease", ()),
    "mooring_deciding": ("1 while it proposes and promotes", ()),
    "mooring_synced": ("1 once every kind has been listed", ()),
    "mooring_world_objects": ("Objects in the world", ("kind",)),
    "mooring_store_cost": ("Cost under way on a TiKV store", ("cluster", "store")),
    "mooring_leaders_left": ("Leaders still to leave the stores that are being handed over", ("cluster",)),
    "mooring_cluster_refused": ("Changes to a TidbCluster that are refused as configured", ("cluster",)),
    "mooring_operators_backed_off": ("How often repeated proposals without effect had to back off", ()),
    "mooring_blackbox_stopped": ("1 once the black box records no more, for a full, broken or slow disk", ()),
    "mooring_inbox_events": ("Events that wait to be taken in", ()),
}
HISTOGRAMS: Final[dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]]] = {
    "mooring_operator_wait_seconds": ("From queued to promoted", ("source",), (0.1, 1, 5, 15, 60, 300, 1800, 7200)),
    "mooring_admission_seconds": (
        "From a request's arrival to its answer",
        ("path",),
        (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.3, 1, 2),
    ),
    "mooring_operator_run_seconds": ("From promoted to ended", ("source",), (1, 5, 15, 60, 300, 1800, 7200)),
}
#: Why something in the queue waits; created at 0 for every source, as are the reasons why one is blocked.
WAITING_REASONS: Final = (Reason.TARGET_FULL, Reason.BEHIND, Reason.FACT, Reason.NOT_SYNCED)
AT_RISK_S: Final = 60.0
# A scrape holds the names of the tables above and no others: not when each series was created, a series more for each.
disable_created_metrics()  # type: ignore[no-untyped-call]


def tables() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Every metric there is, with its help and labels: ours and those of the capabilities."""
    theirs = {name: told for one in descriptors() for name, told in one.gauges.items()}
    return {**COUNTERS, **GAUGES, **theirs, **{name: told[:2] for name, told in HISTOGRAMS.items()}}


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counters = {
            name: Counter(name.removesuffix("_total"), text, labels, registry=self.registry)
            for name, (text, labels) in COUNTERS.items()
        }
        #: The series counted so far, by name and labels: to look one up costs more than to count.
        self._counted: dict[tuple[str, tuple[tuple[str, str], ...]], Counter] = {}
        #: Gauges of capabilities, in which a role or constraint may come and go.
        self._theirs = {name: told for one in descriptors() for name, told in one.gauges.items()}
        self._gauges = {
            name: Gauge(name, text, labels, registry=self.registry)
            for name, (text, labels) in {**GAUGES, **self._theirs}.items()
        }
        self._histograms = {
            name: Histogram(name, text, labels, registry=self.registry, buckets=buckets)
            for name, (text, labels, buckets) in HISTOGRAMS.items()
        }
        self._waiting_series: set[tuple[str, str, str]] = {
            (source, str(state), str(reason))
            for source in sources()
            for state, reasons in ((State.WAITING, WAITING_REASONS), (State.BLOCKED, BLOCKED_REASONS))
            for reason in reasons
        }
        for series in self._waiting_series:
            self._gauges["mooring_operators_waiting"].labels(*series)
        for source in sources():
            self._gauges["mooring_operators_running"].labels(source)
            self._gauges["mooring_would"].labels(source)

    def count(self, name: str, labels: Mapping[str, str], by: int = 1) -> None:
        series = (name, tuple(labels.items()))
        counter = self._counted.get(series)
        if counter is None:
            counter = self._counters[name]
            counter = self._counted[series] = counter.labels(**labels) if labels else counter
        counter.inc(by)

    def gauge(self, name: str, labels: Mapping[str, str], value: float) -> None:
        gauge = self._gauges[name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None:
        histogram = self._histograms[name]
        (histogram.labels(**labels) if labels else histogram).observe(value)

    def look_at(self, engine: Engine, inbox: int) -> None:
        """Refresh the gauges; called for each scrape, not on every event."""
        waiting = dict.fromkeys(self._waiting_series, 0)
        running = dict.fromkeys(sources(), 0)
        would = Counted(operator.source for operators in engine.would.values() for operator in operators)
        for operator_id, why in why_all(engine.queue).items():
            found = engine.queue.get(operator_id)
            series = (found.source if found is not None else "", str(State.WAITING), str(why.reason))
            waiting[series] = waiting.get(series, 0) + 1
        for one in engine.running.values():
            running[one.operator.source] = running.get(one.operator.source, 0) + 1
        blocked = needs_you(engine)
        for series in map(_blocked, blocked):
            waiting[series] = waiting.get(series, 0) + 1
        # A series that was exported once is exported at 0 afterwards, never dropped: an alert must be able to end.
        self._waiting_series.update(waiting)
        for (source, state, reason), count in waiting.items():
            self.gauge("mooring_operators_waiting", {"source": source, "state": state, "reason": reason}, count)
        for source, count in running.items():
            self.gauge("mooring_operators_running", {"source": source}, count)
            self.gauge("mooring_would", {"source": source}, would[source])
        self.gauge("mooring_needs_you", {}, len(blocked))
        late = (o for o in engine.waiting.values() if o.deadline is not None and o.deadline - engine.now < AT_RISK_S)
        self.gauge("mooring_deadlines_at_risk", {}, sum(1 for _ in late))
        self._look_at_capabilities(engine)
        self._look_at_clusters(engine)
        self.gauge("mooring_leading", {}, engine.leading)
        self.gauge("mooring_deciding", {}, engine.deciding)
        self.gauge("mooring_synced", {}, engine.synced)
        self.gauge("mooring_operators_backed_off", {}, engine.backed_off)
        self.gauge("mooring_inbox_events", {}, inbox)
        self.gauge("mooring_world_objects", {"kind": "Node"}, engine.world.count(Kind.NODE))
        self.gauge("mooring_world_objects", {"kind": "Pod"}, engine.world.count(Kind.POD))

    def _look_at_capabilities(self, engine: Engine) -> None:
        """The gauges of the capabilities; a role or constraint that is gone is no longer exported."""
        for name, (_, labels) in self._theirs.items():
            if labels:
                self._gauges[name].clear()
        if not engine.leading:
            return
        for one in descriptors():
            notes = (
                {key: value for (name, key), value in engine.notes.items() if name == one.name} if one.gauges else {}
            )
            for name, named, value in one.figures(notes):
                self.gauge(name, named, value)

    def _look_at_clusters(self, engine: Engine) -> None:
        """By TidbCluster: what is under way on its stores, and what is left of it. One that is gone is no longer
        exported."""
        costs, left, refused = dict[str, int](), Counted[str](), Counted[str]()
        clusters = {str(tc.key) for tc in engine.world.tidb_clusters()} if engine.leading else set()
        for one in engine.running.values():
            costs.update((t, engine.queue.used(t)) for t in one.cost if t.startswith("store/"))
            left[one.operator.payload.cluster] += int(one.figure or 0)
        for (_, key), verdicts in engine.refused.items():
            refused[key] += len(verdicts)
        for name in ("mooring_store_cost", "mooring_leaders_left", "mooring_cluster_refused"):
            self._gauges[name].clear()
        for cluster in clusters:
            self.gauge("mooring_leaders_left", {"cluster": cluster}, left[cluster])
            self.gauge("mooring_cluster_refused", {"cluster": cluster}, refused[cluster])
        for target, cost in costs.items():
            cluster, _, store = target.removeprefix("store/").rpartition("/")
            self.gauge("mooring_store_cost", {"cluster": cluster, "store": store}, cost)

    def render(self) -> bytes:
        return generate_latest(self.registry)


def _blocked(one: Standing) -> tuple[str, str, str]:
    """Source, state and reason of whatever a person must act on: operators on their way, and what was not begun."""
    if isinstance(one.of, OperatorRecord):
        waiting_on = one.of.waiting_on
        return one.of.operator.source, str(one.state), str(waiting_on.reason if waiting_on is not None else "")
    return one.capability, str(one.state), str(one.of.reason)
