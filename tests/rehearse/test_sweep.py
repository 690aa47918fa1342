"""The sweep: every single failure on one snapshot, forked from one cluster that came up once."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from mooring.capabilities.mix.labels import AFFINITY, ENABLED, MODE
from mooring.capabilities.mix.policy import MixPolicy
from mooring.capabilities.mix.worth import Price, Prices
from mooring.core.model.kinds import Kind
from mooring.process.assemble import capacity_rules
from mooring.process.settings.config import Config
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import manifests
from mooring_lab.rehearse.events.catalog import BadEventError, acts
from mooring_lab.rehearse.events.failures import Failure, failures, scopes
from mooring_lab.rehearse.outcome import BROKEN, RehearsalOutcome
from mooring_lab.rehearse.play import Play, everything_on, rehearse
from mooring_lab.rehearse.snapshot.schema import Snapshot
from mooring_lab.rehearse.sweep.advice import advised, changes
from mooring_lab.rehearse.sweep.broken import Broken
from mooring_lab.rehearse.sweep.forks import Failed, Task, play_each
from mooring_lab.rehearse.sweep.report import first_line, render
from mooring_lab.rehearse.sweep.running import Running
from mooring_lab.rehearse.sweep.sweep import Found, Sweep, SweepPlan, Weakness, collect, mix_share, run, summary
from tests.rehearse.test_play import taken

CONFIG = everything_on(Config())
PLAN = SweepPlan(config=CONFIG)
RULES = capacity_rules(CONFIG)
LINE = Broken(object="StatefulSet data/db", promise="quorum", words="db: quorum", seconds=60.0, fix="spread it")


def small(**labels: str) -> Snapshot:
    """Six nodes in two racks, one of them with all of `web`."""
    cluster = Cluster(seed=5)
    for at in range(6):
        cluster.add_node(f"n{at}", rack=at % 2, labels=labels)
    for at in range(1, 6):
        cluster.cordon(f"n{at}")
    cluster.deployment("shop", "web", 2)
    cluster.run_until_stable()
    for at in range(1, 6):
        cluster.cordon(f"n{at}", on=False)
    return taken(cluster)


def test_every_failure_of_the_snapshot_is_there_and_nodes_that_are_alike_once(demo: Snapshot) -> None:
    """O7: each node, rack, zone, pool, machine and member; alike nodes are one event that names the others."""
    found = failures(small(), RULES, ("node", "rack"))
    assert [(one.event, one.alike) for one in found if one.scope == "node"] == [
        ("node-lost n0", ()),
        ("node-lost n1", ("n3", "n5")),
        ("node-lost n2", ("n4",)),
    ]
    assert [one.event for one in found if one.scope == "rack"] == ["rack-lost 0", "rack-lost 1"]
    whole = failures(demo, RULES)
    assert {one.scope for one in whole} == {"node", "rack", "zone", "pool", "machine", "member"}
    nodes = [one for one in whole if one.scope == "node"]
    assert sum(1 + len(one.alike) for one in nodes) == len(demo.of(Kind.NODE))
    members = [one.event for one in whole if one.scope == "member"]
    assert members == [f"restart pod/tidb/demo-tikv-{at}" for at in range(3)]
    for one in whole:
        assert acts(one.event.split(), demo, RULES, PLAN.options)


def test_the_longest_are_played_first(demo: Snapshot) -> None:
    """O7: at the end of a sweep no core and no worker waits for one long event that was begun last."""
    whole = failures(demo, RULES)
    sizes = {one.event: one.nodes for one in whole}
    for event, nodes in sizes.items():
        planned = acts(event.split(), demo, RULES, PLAN.options)
        assert nodes == max(1, len(planned[0].nodes)), event
    begun: list[str] = []
    running = Running(small(), failures(small(), RULES, ("node", "rack")), PLAN, begun.append, None, "")
    assert running.run(1, "")
    played = [line.split("  ")[-1] for line in begun[1:]]
    assert played == ["rack-lost 0", "rack-lost 1", "node-lost n0", "node-lost n1", "node-lost n2"]
    assert begun[-1].split("  ")[0] == "[########################] 5 of 5, 0:00 left"


def test_scopes_that_do_not_exist_are_named() -> None:
    """O7: what is wrong, and what is allowed."""
    assert scopes("rack, node") == ("rack", "node")
    with pytest.raises(BadEventError, match=r"--events nodes: allowed: node, rack"):
        scopes("nodes")


def test_an_event_of_a_sweep_comes_out_as_it_does_when_it_is_played_alone(demo: Snapshot) -> None:
    """O7: byte for byte, whoever else is forked from the same cluster."""
    todo = [Failure(scope="rack", event="rack-lost 2"), Failure(scope="pool", event="spot-gone")]
    results: list[tuple[Failure, Found | Failed]] = []
    assert run(demo, todo, PLAN, 2, lambda failure, result: results.append((failure, result)))
    assert len(results) == 2
    for failure, result in results:
        planned = acts(failure.event.split(), demo, RULES, PLAN.options)
        assert msgspec.json.encode(result) == msgspec.json.encode(summary(failure, rehearse(demo, planned, CONFIG)))


def test_where_it_is_weakest_comes_first_with_what_would_fix_it() -> None:
    """O7: the node with all of `web` breaks it, and a spread constraint would fix that; the other nodes break nothing."""
    snapshot = small()
    todo = failures(snapshot, RULES, ("node",))
    results: list[tuple[Failure, Found | Failed]] = []
    run(snapshot, todo, PLAN, 2, lambda failure, result: results.append((failure, result)))
    found = collect(snapshot, todo, results)
    assert (found.played, found.kept, found.stands_for, len(found.broken)) == (3, 2, 6, 1)
    (weak,) = found.weakest
    assert (weak.object, weak.promise, weak.events) == ("Deployment shop/web", "one replica", ("node-lost n0",))
    assert weak.fix == ""
    found = advised(found, snapshot, PLAN, 2)
    assert (
        found.weakest[0].fix
        == "a topologySpreadConstraint on kubernetes.io/hostname (maxSkew 1, DoNotSchedule) (tried)"
    )
    lines = render(found, todo)
    assert lines[0].startswith("BROKEN: 1 of 3 events would break a promise; weakest: Deployment shop/web")
    assert "            6 failures, 3 events: 3 are like one that is played" in lines
    assert lines[-1] == "3 played: 2 kept, 1 broken, 0 cannot tell"


def _advised(snapshot: Snapshot, event: str) -> Sweep:
    todo = [Failure(scope="node", event=event)]
    results: list[tuple[Failure, Found | Failed]] = []
    run(snapshot, todo, PLAN, 1, lambda failure, result: results.append((failure, result)))
    return advised(collect(snapshot, todo, results), snapshot, PLAN, 2)


def test_a_workload_that_is_spread_already_is_not_told_to_spread() -> None:
    """O7: one replica is all there is: a second one is what helps, and it was tried."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(3, prefix="n")
    rule = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    rules = [{**rule, "labelSelector": {"matchLabels": {"app": "web"}}}]
    template = manifests.pod_template({"app": "web"}, topologySpreadConstraints=rules)
    cluster.deployment("shop", "web", 1, template=template)
    snapshot = taken(cluster)
    (node,) = {pod["spec"]["nodeName"] for pod in snapshot.of(Kind.POD)}
    (weak,) = _advised(snapshot, f"node-lost {node}").weakest
    assert weak.fix == "2 replicas (tried)"


def test_a_pinned_workload_is_not_told_to_spread() -> None:
    """O7: its rule allows one node alone: neither a spread nor one replica more helps; both are named as tried."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(3, prefix="n")
    template = manifests.pod_template({"app": "web"}, nodeSelector={"kubernetes.io/hostname": "n1"})
    cluster.deployment("shop", "web", 2, template=template)
    sweep = _advised(taken(cluster), "node-lost n1")
    weak = next(one for one in sweep.weakest if one.object == "Deployment shop/web")
    assert (weak.fix, weak.helps, len(weak.tried)) == ("", "", 2)
    assert any("tried, and does not help: a topologySpreadConstraint" in line for line in render(sweep, []))


def test_what_is_advised_is_possible_for_that_owner() -> None:
    """O7: mix spreads Deployments and StatefulSets; for an owner of an unknown kind nothing is made up."""
    weak = Weakness(object="", promise="notice", words="", seconds=None, to_the_end=False, events=("spot-gone",))
    (spread,) = changes(msgspec.structs.replace(weak, object="Deployment shop/web"), small(), PLAN)
    assert "optimize-scheduling=true" in spread.words
    assert changes(msgspec.structs.replace(weak, object="Rollout shop/web"), small(), PLAN) == []


def _found(event: str, *breaches: Broken, verdict: str = "broken") -> tuple[Failure, Found]:
    one = Found(event=event, scope="node", verdict=verdict, first=event, breaches=breaches)
    return Failure(scope="node", event=event), one


def test_breaches_are_ranked_and_the_order_of_coming_in_does_not_matter(demo: Snapshot) -> None:
    """O7: what lasts to the end before what ends, then the longest; events that break one promise are one row."""
    lasting = msgspec.structs.replace(LINE, object="StatefulSet data/kv", to_the_end=True, seconds=10.0)
    longer = msgspec.structs.replace(LINE, seconds=90.0)
    results = [_found("node-lost a", LINE), _found("node-lost b", longer), _found("node-lost c", lasting)]
    todo = [failure for failure, _ in results]
    one, other = collect(demo, todo, results), collect(demo, todo, results[::-1])
    assert one == other
    assert [row.object for row in one.weakest] == ["StatefulSet data/kv", "StatefulSet data/db"]
    assert (one.weakest[1].seconds, one.weakest[1].events) == (90.0, ("node-lost b", "node-lost a"))


def test_what_was_not_played_or_cannot_be_told_is_never_kept(demo: Snapshot) -> None:
    """O7: no false comfort in line 1."""
    results = [_found("node-lost a", verdict="kept")]
    todo = [results[0][0], Failure(scope="node", event="node-lost b")]
    assert first_line(collect(demo, todo, results)) == "KEPT: no single failure of 1 breaks a promise, 1 not played"
    failed = [*results, (todo[1], Failed("Mooring ended"))]
    assert first_line(collect(demo, todo, failed)).startswith("CANNOT TELL for 1 of 2 events")
    assert first_line(collect(demo, [], [])) == "CANNOT TELL: nothing was played"


def _play(snapshot: Snapshot) -> Play:
    return Play(snapshot, [], CONFIG, seed=1, limit_s=1800.0)


def _children() -> set[str]:
    """Processes of this one, ended ones that nobody waited for among them."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_ctrl_c_leaves_what_is_known_and_no_process() -> None:
    """O7: what was told until then is kept, and the children that still play are ended."""
    snapshot, before = small(), _children()
    known: list[int] = []

    def told(number: int, _result: object) -> None:
        known.append(number)
        os.kill(os.getpid(), signal.SIGINT)

    planned = acts(["node-lost", "n0"], snapshot, RULES, PLAN.options)
    tasks = [Task(planned, 1, lambda outcome: outcome.verdict)] * 5
    assert not play_each(_play(snapshot), tasks, str, 2, told)
    assert len(known) == 1
    assert _children() == before


def test_a_child_that_dies_is_an_error_of_its_event_alone() -> None:
    """O7: killed, or failed with words: the others are played."""
    snapshot = small()
    planned = acts(["node-lost", "n0"], snapshot, RULES, PLAN.options)

    def die(_outcome: RehearsalOutcome) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    def fail(_outcome: RehearsalOutcome) -> str:
        raise ValueError("no room for words")

    tasks = [Task(planned, 1, die), Task(planned, 1, fail), Task(planned, 1, lambda outcome: outcome.verdict)]
    found: dict[int, object] = {}
    assert play_each(_play(snapshot), tasks, str, 2, found.__setitem__)
    assert found == {0: Failed("the process that played it ended with -9"), 1: Failed("no room for words"), 2: "broken"}


def test_the_sweep_says_what_mix_saves_and_what_it_risks_for_that() -> None:
    """M12: spot share and saving of the snapshot, beside what the loss of the spot pool breaks; nothing where mix places
    nothing."""
    prices = Prices(currency="USD", cpu=Price(on_demand=0.05, spot=0.02))
    plan = SweepPlan(config=msgspec.structs.replace(CONFIG, policies=(MixPolicy(prices=prices),)))
    cluster = Cluster(seed=5)
    cluster.add_nodes(2, "n", capacity="on-demand")
    cluster.add_nodes(4, "s", capacity="spot")
    cluster.deployment("shop", "web", 4, labels={ENABLED: "true", MODE: "all-in-spot"})
    cluster.run_until_stable()
    for pod in cluster.pods("shop", "web"):
        where = "spot" if pod["spec"]["nodeName"].startswith("s") else "on-demand"
        cluster.store.patch(Kind.POD, "shop", pod["metadata"]["name"], {"metadata": {"labels": {AFFINITY: where}}})
    snapshot = taken(cluster)
    found = mix_share(snapshot, plan.config)
    assert found is not None and (found.replicas, found.currency) == (4, "USD")
    assert found.on_spot and found.saved is not None and found.saved > 0
    todo = failures(snapshot, RULES, ("pool",))
    (pool,) = todo
    ill = Found(event=pool.event, scope="pool", verdict=BROKEN, first="", breaches=(LINE,))
    empty = msgspec.structs.replace(collect(snapshot, todo, []), mix=found)
    worse = msgspec.structs.replace(collect(snapshot, todo, [(pool, ill)]), mix=found)
    share = f"mix         {100 * found.on_spot // 4} % of 4 replicas that mix places on spot; about"
    for sweep, risks in (
        (empty, "nothing: "),
        (worse, "a promise breaks without a spot pool (1 of 1 event)"),
        (empty, "not played"),
    ):
        lines = render(sweep, [] if risks == "not played" else todo)
        at = next(n for n, line in enumerate(lines) if line.startswith(share))
        assert "USD a month less than all on-demand" in lines[at] and lines[at + 1].startswith(f"  risks     {risks}")
    assert "worst: db: quorum" in "\n".join(render(worse, todo))
    assert mix_share(small(), plan.config) is None
