"""What a scrape holds: names by one rule, words from one vocabulary, series that are there before anything happens."""

import re

from prometheus_client.parser import text_string_to_metric_families

from mooring.capabilities.handoff.requests import RESTART
from mooring.capabilities.registry import sources
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import BLOCKED_REASONS, Reason, State
from mooring.process.metrics import COUNTERS, HISTOGRAMS, WAITING_REASONS, Metrics, tables
from mooring.process.settings.config import Config
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.stage.rig import Rig
from tests.sim.scenarios.restart import NAME, NAMESPACE, RestartScenario

TABLES = tables()
#: Under these names CKE's dashboards ask.
OF_CKE = {name for name in TABLES if name.startswith("cke_sabakan_")}


def waiting(metrics: Metrics) -> dict[tuple[str, str, str], float]:
    families = text_string_to_metric_families(metrics.render().decode())
    samples = [s for f in families if f.name == "mooring_operators_waiting" for s in f.samples]
    return {(s.labels["source"], s.labels["state"], s.labels["reason"]): s.value for s in samples}


def test_names_follow_one_rule():
    """4.8: our prefix, counters end in _total, times in _seconds, and nothing that names a pod, a node or an id."""
    for name, (_, labels, *_rest) in TABLES.items():
        assert name in OF_CKE or re.fullmatch(r"mooring_[a-z]+(_[a-z]+)*", name)
        assert name.endswith("_total") == (name in COUNTERS)
        assert name not in HISTOGRAMS or name.endswith("_seconds")
        assert not {"pod", "node", "id", "operator", "name", "namespace", "machine", "region"} & set(labels)
        assert "store" not in labels or name == "mooring_store_cost", "only while something is under way there"


def test_a_scrape_holds_the_tables_and_nothing_else():
    """Whatever has been counted: no series but those that are documented."""
    metrics = Metrics()
    for name, (_, labels) in COUNTERS.items():
        metrics.count(name, dict.fromkeys(labels, "x"))
    for name, (_, labels, _) in HISTOGRAMS.items():
        metrics.observe(name, dict.fromkeys(labels, "x"), 0.1)
    families = text_string_to_metric_families(metrics.render().decode())
    assert {f.name + ("_total" if f.type == "counter" else "") for f in families} == set(TABLES)


def test_what_may_wait_is_there_at_0_from_the_start():
    """An alert can tell 0 from unknown: each source with each reason of the queue, and each of those that hold."""
    found = waiting(Metrics())
    assert set(found.values()) == {0.0}
    assert {key[0] for key in found} == set(sources())
    assert {(state, reason) for _, state, reason in found} == {
        *((str(State.WAITING), str(reason)) for reason in WAITING_REASONS),
        *((str(State.BLOCKED), str(reason)) for reason in BLOCKED_REASONS),
    }
    assert {reason for _, _, reason in found} <= {str(reason) for reason in Reason}


def test_what_is_held_is_told_by_its_reason_and_told_at_0_afterwards():
    """The only store cannot give its leaders away: held, by that reason; asked no more, the series is still there."""
    rig = Rig(seed=3, config=Config(features={"handoff": True}), cluster=Cluster(seed=3))
    for number in range(2):
        rig.cluster.add_node(f"n{number}", capacity="on-demand", rack=1)
    rig.cluster.tidb_cluster("tidb", "demo", tikv=1, with_pd=True)
    held = ("handoff", str(State.BLOCKED), str(Reason.ONE_STORE))

    async def scenario(rig):
        def told():
            leader.metrics.look_at(leader.engine, 0)
            found = waiting(leader.metrics)
            needs_you = leader.metrics.registry.get_sample_value("mooring_needs_you")
            assert sum(count for key, count in found.items() if key[1] == State.BLOCKED) == needs_you
            return found[held]

        leader = rig.start()
        await rig.until(rig.leads)
        await rig.until(lambda: rig.cluster.ready("tidb", "demo-tikv") == 1)
        rig.cluster.pd["tidb", "demo"].load(10)
        rig.cluster.annotate(Kind.POD, "tidb", "demo-tikv-0", {RESTART: ""})
        await rig.until(lambda: told() == 1.0)
        rig.cluster.annotate(Kind.POD, "tidb", "demo-tikv-0", {RESTART: None})
        await rig.until(lambda: told() == 0.0)

    rig.play(scenario)


def test_a_hand_over_is_told_by_cluster_while_it_lasts():
    """T12, D9: which cluster, what is under way on its store, how many leaders are left; nothing of it afterwards."""
    scenario = RestartScenario(regions=60)
    rig, cluster = scenario.rig(), {"cluster": f"{NAMESPACE}/{NAME}"}
    seen = []

    def told(name, **more):
        metrics = rig.leader().metrics
        metrics.look_at(rig.leader().engine, 0)
        return metrics.registry.get_sample_value(name, {**cluster, **more})

    async def play(rig):
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        await scenario.act(rig)
        await rig.until(lambda: told("mooring_store_cost", store="1") == 10)
        await rig.until(lambda: seen.append(told("mooring_leaders_left")) or scenario.done(rig), every_s=1.0)
        await rig.until(lambda: not rig.unsettled())
        assert told("mooring_leaders_left") == 0 and told("mooring_store_cost", store="1") is None
        assert told("mooring_cluster_refused") == 0

    rig.play(play)
    assert max(seen) > 0
