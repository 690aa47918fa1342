"""Events played on snapshots: who is interrupted, what Mooring does, and whether it holds."""

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from mooring.capabilities.mix.labels import CUSTOM, ENABLED, MODE
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import Kind
from mooring.core.model.times import rfc3339
from mooring.process.assemble import capacity_rules
from mooring.process.settings.config import Config
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import manifests
from mooring_lab.rehearse.events.catalog import Options, acts
from mooring_lab.rehearse.outcome import RehearsalOutcome
from mooring_lab.rehearse.play import everything_on, rehearse
from mooring_lab.rehearse.report import render
from mooring_lab.rehearse.snapshot import schema
from mooring_lab.rehearse.snapshot.capture import gather, shot
from mooring_lab.rehearse.snapshot.schema import KINDS, PdShot, PlacementShot, Snapshot, StoreShot


def play(
    snapshot: Snapshot, words: str, *, features: dict[str, bool] | None = None, seed: int = 1, **options: object
) -> RehearsalOutcome:
    config = everything_on(Config()) if features is None else Config(features=features)
    planned = acts(words.split(), snapshot, capacity_rules(config), Options(**options))  # type: ignore[arg-type]
    return rehearse(snapshot, planned, config, seed=seed)


def regions_of(snapshot: Snapshot) -> int:
    return sum(one.regions for shot in snapshot.pds for one in shot.placements)


def taken(cluster: Cluster) -> Snapshot:
    cluster.run_until_stable()
    whole = {kind: cluster.store.list(kind) for kind in KINDS}
    return gather(whole, taken_at=rfc3339(cluster.timeline.now()), source="test", namespace="mooring-system")


def test_spot_nodes_that_go_with_notice_interrupt_nobody(demo: Snapshot) -> None:
    """O4, M8: every pod is replaced before it goes, and the timeline says by whom and why."""
    outcome = play(demo, "spot-gone")
    played = outcome.played
    assert (outcome.verdict, outcome.answer) == ("kept", "HOLDS: no pod is interrupted")
    assert {one.how for one in played.gone} == {"moved"}
    assert len(played.gone) == len(played.come) == 24
    assert played.operators == {"spot": {"finished": 24}}
    assert any(row.who == "spot" and row.reason == "notice" for row in played.timeline)
    assert (played.remarks, played.open, played.ended) == ((), (), "quiet")


def test_without_mooring_the_same_notice_cuts_everybody_off(demo: Snapshot) -> None:
    """O4: every feature off is the comparison: the notice comes, nobody acts, and the verdict says so."""
    outcome = play(demo, "spot-gone", features={})
    assert outcome.verdict == "broken"
    assert any("24 pods cut off when 12 nodes went" in words for words in outcome.broken)
    assert {one.how for one in outcome.played.gone} == {"lost"}


def test_who_is_not_managed_is_cut_off_and_named() -> None:
    """O4, M1: a workload that does not opt in is not touched, not even with notice; the verdict names it."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(2, "n")
    cluster.add_nodes(2, "s", capacity="spot")
    cluster.deployment("shop", "web", 8)
    outcome = play(taken(cluster), "spot-gone")
    assert outcome.verdict == "broken"
    assert outcome.broken[0].endswith("went, in spite of the notice: Deployment shop/web")


def test_spot_nodes_that_just_go_take_an_all_spot_workload_down(demo: Snapshot) -> None:
    """O4, M2: `api` is all in spot; its floor is 0, and the rehearsal shows for how long it is gone."""
    outcome = play(demo, "spot-gone", unannounced=True)
    assert outcome.verdict == "broken"
    (down,) = outcome.played.breaches
    assert (down.subject, down.promise, down.worst) == ("Deployment shop/api", "one replica", 0)
    assert down.until == outcome.over_s
    worst = {one.workload: (one.worst, one.at_end) for one in outcome.played.interrupted}
    assert worst["Deployment shop/web"] == (2, 5)
    assert worst["Deployment shop/pay"] == (4, 6)


def test_a_lost_rack_with_all_of_pd_and_tikv_loses_their_quorum(demo: Snapshot) -> None:
    """O4: which quorum is lost, and that it is not over while the machines are away."""
    outcome = play(demo, "rack-lost 1")
    assert (outcome.verdict, outcome.over_s) == ("broken", None)
    rules = {(one.subject, one.promise) for one in outcome.played.breaches}
    assert ("StatefulSet tidb/demo-pd", "quorum") in rules
    (losses,) = outcome.played.regions
    assert losses.left_without_quorum == losses.regions == regions_of(demo)
    assert any(row.who == "pd" and "no majority" in row.text for row in outcome.played.timeline)
    assert {one.node for one in outcome.played.stuck} <= {"n1", "n2", "n3", "n4"}
    assert any("kubectl delete node" in line for line in render(outcome))


def test_a_lost_node_costs_elections_and_no_promise(demo: Snapshot) -> None:
    """O4: one TiKV member with its machine: its leaders are elected anew, every region keeps its majority."""
    node = next(p["spec"]["nodeName"] for p in demo.of(Kind.POD) if p["metadata"]["name"] == "demo-tikv-1")
    outcome = play(demo, f"node-lost {node}")
    (losses,) = outcome.played.regions
    assert outcome.verdict == "kept"
    assert outcome.answer.startswith("HOLDS, but not over")
    assert (losses.without_leader, losses.without_quorum, losses.cut_off) == (regions_of(demo) // 3, 0, ())
    assert 10.0 <= losses.without_leader_s <= 21.0


def test_a_rolling_restart_of_tikv_never_has_two_away_and_no_region_without_a_leader(demo: Snapshot) -> None:
    """O4, E1, E7: one after the other, each only after its leaders left."""
    outcome = play(demo, "restart tidb/demo")
    (losses,) = outcome.played.regions
    assert outcome.verdict == "kept"
    assert (losses.without_leader, losses.away_at_once) == (0, 1)
    assert {one.pod for one in outcome.played.gone if one.how == "moved"} == {f"tidb/demo-tikv-{i}" for i in range(3)}
    assert outcome.over_s is not None


def test_retired_machines_are_emptied_before_anybody_is_driven_out(demo: Snapshot) -> None:
    """O4, O2: TiKV is handed over, everybody else moves, nobody falls below a line."""
    outcome = play(demo, "retire M002 M003")
    assert outcome.verdict == "kept"
    assert {one.how for one in outcome.played.gone} == {"moved"}
    assert outcome.played.operators["fleet"]["finished"] >= 2


def test_machines_of_all_of_pd_and_tikv_are_retired_without_a_leader_lost(demo: Snapshot) -> None:
    """E6: PD's leadership moves on while a store is held empty, and the new leader's balancer fills it again unseen."""
    outcome = play(demo, "retire M001 M002 M003")
    assert outcome.verdict == "kept", outcome.answer
    assert not any(one.cut_off for one in outcome.played.regions)


@pytest.mark.parametrize("machine", ["M007", "M009", "M011"])
def test_a_retired_machine_leaves_every_workload_its_on_demand_floor(demo: Snapshot, machine: str) -> None:
    """M5, F9: a pod that Mix keeps on on-demand nodes goes when its replacement is Ready; it was 8 s below its floor."""
    outcome = play(demo, f"retire {machine}")
    assert (outcome.verdict, outcome.answer) == ("kept", "HOLDS: no pod is interrupted")


def test_two_events_meet(demo: Snapshot) -> None:
    """O4: a rack is lost, and a minute and a half later the spot nodes get notice: both are in one timeline."""
    outcome = play(demo, "rack-lost 2 then spot-gone@90s")
    told = [(row.at_s, row.text[:10]) for row in outcome.played.timeline if row.who == "event"]
    assert told == [(0.0, "rack 2 is "), (90.0, "12 spot no")]
    assert outcome.played.names == ("rack-lost", "spot-gone")


def test_who_finds_no_room_is_told_with_what_it_would_take() -> None:
    """O4: the number of nodes is tried out, not guessed; a pod whose volume is on a lost machine is told apart."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(3, "n", cpu="8", memory="32Gi")
    cluster.add_nodes(3, "s", capacity="spot", cpu="8", memory="32Gi")
    cluster.deployment("shop", "web", 10, template=manifests.pod_template({"app": "web"}, cpu="4"))
    outcome = play(taken(cluster), "spot-gone", unannounced=True)
    waiting = outcome.played.unplaced
    assert (len(waiting), {one.lacks for one in waiting}) == (4, {"room"})
    assert "Insufficient cpu" in waiting[0].why
    (more,) = outcome.played.more
    assert (more.nodes, more.places, more.node_class) == (2, 4, "on-demand")
    assert "4 pods find no room" in outcome.broken
    assert any("it would take 2 nodes more like n0 (on-demand, cpu 8" in line for line in render(outcome))


def test_a_pod_that_no_node_helps_is_not_counted_as_lack_of_room() -> None:
    """O4: its volume went with its machine, whose Node the cloud took away: more machines change nothing."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(2, "n")
    cluster.add_nodes(2, "s", capacity="spot")
    template = manifests.pod_template({"app": "db"}, nodeSelector={"node.kubernetes.io/capacity": "spot"})
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "local-disk"}}
    cluster.stateful_set("data", "db", 1, template=template, volumeClaimTemplates=[claim])
    outcome = play(taken(cluster), "spot-gone", unannounced=True)
    (one,) = outcome.played.unplaced
    assert (one.pod, one.lacks) == ("data/db-0", "pinned")
    assert outcome.played.more == ()


def test_a_pod_that_had_no_place_before_is_not_blamed_on_the_event() -> None:
    """O4: it is listed as such, and the verdict does not turn on it."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(3, "n")
    cluster.add_nodes(2, "s", capacity="spot")
    cluster.deployment("shop", "web", 4, labels={"vacant.io/optimize-scheduling": "true"})
    cluster.deployment("shop", "huge", 1, template=manifests.pod_template({"app": "huge"}, cpu="64"))
    cluster.run_for(60)
    outcome = play(taken(cluster), "spot-gone")
    assert [(one.workload, one.lacks) for one in outcome.played.unplaced] == [("Deployment shop/huge", "before")]
    assert outcome.verdict == "kept"
    assert "1 workload short before the event" in outcome.played.remarks[-1]


def test_a_pod_that_nobody_wants_back_is_lost_for_good_and_said() -> None:
    """O4: no controller, no replacement: a remark, and not among those that wait for their machine."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(2)
    bare = {"metadata": {"namespace": "shop", "name": "bare"}, "spec": {"containers": [{"name": "c"}]}}
    cluster.store.create(Kind.POD, bare)
    cluster.run_for(30)
    node = cluster.store.get(Kind.POD, "shop", "bare")["spec"]["nodeName"]
    outcome = play(taken(cluster), f"node-lost {node}")
    assert outcome.answer == "HOLDS, but 1 pod without an owner is lost for good: shop/bare"
    assert outcome.played.stuck == ()


def test_a_pod_without_an_owner_counts_as_lost_only_where_it_is() -> None:
    """O4: its node is cut off and comes back: before Kubernetes gives up the pod it serves again, after that it is
    gone."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(1, "n", zone="a")
    cluster.add_nodes(1, "m", zone="b")
    cluster.deployment("shop", "web", 1)
    spec = {"nodeName": "n0", "containers": [{"name": "c"}]}
    cluster.store.create(Kind.POD, {"metadata": {"namespace": "shop", "name": "bare"}, "spec": spec})
    snapshot = taken(cluster)
    short = play(snapshot, "zone-cut-off a", away_s=60.0)
    assert short.played.lost_for_good == () and short.answer.startswith("HOLDS: ")
    long = play(snapshot, "zone-cut-off a", away_s=420.0)
    assert long.played.lost_for_good == ("shop/bare",)
    assert "1 pod without an owner is lost for good: shop/bare" in long.answer


def owned_by(snapshot: Snapshot, kind: Kind, name: str, owner: dict[str, object]) -> Snapshot:
    """The same, with these objects owned by something that no controller of the sandbox looks after."""
    objects = dict(snapshot.objects)
    objects[kind.value] = [
        {**one, "metadata": {**one["metadata"], "ownerReferences": [owner]}}
        if one["metadata"]["name"].startswith(name)
        else one
        for one in snapshot.of(kind)
    ]
    objects.pop(Kind.DEPLOYMENT.value, None)
    return msgspec.structs.replace(snapshot, objects=objects)


ROLLOUT = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": "r-1", "controller": True}


def test_a_rollout_that_stands_still_is_played_as_its_replica_set() -> None:
    """O4: Kubernetes' own controller replaces the pods, on the other node; none serves for a while, which is a breach."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(2, "n")
    cluster.cordon("n1")
    cluster.deployment("shop", "web", 4)
    cluster.run_until_stable()
    cluster.cordon("n1", on=False)
    outcome = play(owned_by(taken(cluster), Kind.REPLICA_SET, "web", ROLLOUT), "node-lost n0")
    assert outcome.answer.startswith("BROKEN: Rollout shop/web had no Ready replica for ")
    assert {(one.workload, one.node) for one in outcome.played.come} == {("Rollout shop/web", "n1")}
    assert len(outcome.played.come) == 4


def test_a_rollout_of_mix_is_moved_in_time() -> None:
    """O4, M8: the snapshot has the Rollout with its labels, so its pods leave spot nodes before these go."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(2, "n")
    cluster.add_nodes(2, "s", capacity="spot")
    cluster.deployment("shop", "web", 4)
    snapshot = owned_by(taken(cluster), Kind.REPLICA_SET, "web", ROLLOUT)
    meta = {"namespace": "shop", "name": "web", "uid": "r-1", "labels": {ENABLED: "true", MODE: "custom", CUSTOM: "1"}}
    spec = {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "strategy": {"canary": {"maxSurge": 1}}}
    objects = {**snapshot.objects, Kind.ROLLOUT.value: [{"metadata": meta, "spec": spec}]}
    written = msgspec.json.encode(msgspec.structs.replace(snapshot, objects=objects))
    argo = written.replace(b'"pod-template-hash"', b'"rollouts-pod-template-hash"')
    outcome = play(msgspec.json.decode(argo, type=Snapshot), "spot-gone")
    assert (outcome.verdict, outcome.answer) == ("kept", "HOLDS: no pod is interrupted")
    assert {(one.workload, one.how) for one in outcome.played.gone} == {("Rollout shop/web", "moved")}


def test_a_rollout_that_is_under_way_is_no_comfort() -> None:
    """O4: two ReplicaSets with replicas: what its next step would do is not known."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(1, "n")
    cluster.deployment("shop", "web", 4)
    snapshot = owned_by(taken(cluster), Kind.REPLICA_SET, "web", ROLLOUT)
    (one,) = snapshot.of(Kind.REPLICA_SET)
    canary = {**one, "metadata": {**one["metadata"], "name": "web-canary", "uid": "rs-2"}, "spec": {**one["spec"]}}
    canary["spec"]["replicas"] = 1
    canary["status"] = {"replicas": 0}
    objects = {**snapshot.objects, Kind.REPLICA_SET.value: [one, canary]}
    outcome = play(msgspec.structs.replace(snapshot, objects=objects), "node-lost n0")
    assert outcome.answer.startswith("CANNOT TELL: Rollout shop/web loses 5 of 5 pods")


def test_pods_of_an_owner_that_nobody_plays_are_no_comfort() -> None:
    """O4: all four pods of a CloneSet are lost; the first line says that this cannot be told, by kind and name."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(1, "n")
    cluster.deployment("shop", "web", 4)
    outcome = play(owned_by(taken(cluster), Kind.POD, "web", {**ROLLOUT, "kind": "CloneSet"}), "node-lost n0")
    assert outcome.verdict == "cannot-tell"
    assert outcome.answer.startswith("CANNOT TELL: CloneSet shop/web loses 4 of 4 pods")
    assert [one.workload for one in outcome.played.interrupted] == ["CloneSet shop/web"]


def test_an_owner_that_nobody_plays_and_that_loses_nobody_does_not_matter() -> None:
    """O4: the same Rollout, and a node that none of its pods is on."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(1, "n")
    cluster.deployment("shop", "web", 4)
    snapshot = taken(cluster)
    cluster.add_nodes(1, "empty")
    snapshot = msgspec.structs.replace(snapshot, objects={**snapshot.objects, "Node": taken(cluster).of(Kind.NODE)})
    outcome = play(owned_by(snapshot, Kind.POD, "web", ROLLOUT), "node-lost empty0")
    assert outcome.answer == "HOLDS: no pod is interrupted"


def test_jobs_and_autoscalers_of_the_snapshot_are_named_in_the_first_line() -> None:
    """O4: they change replicas and pods by themselves, and not here; whatever the verdict is, line 1 says so."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(1, "n")
    cluster.deployment("shop", "web", 2)
    snapshot = taken(cluster)
    cluster.add_nodes(1, "empty")
    snapshot = msgspec.structs.replace(snapshot, objects={**snapshot.objects, "Node": taken(cluster).of(Kind.NODE)})
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "report", "uid": "j-1", "controller": True}
    snapshot = owned_by(snapshot, Kind.POD, "web", job)
    snapshot = msgspec.structs.replace(snapshot, autoscalers=("HorizontalPodAutoscaler shop/web",))
    outcome = play(snapshot, "node-lost empty0")
    assert outcome.answer == "HOLDS: no pod is interrupted; not played: Job shop/report (and 1 more)"
    assert play(snapshot, "node-lost n0").answer.startswith("CANNOT TELL: Job shop/report loses 2 of 2 pods")
    ended = msgspec.structs.replace(
        snapshot,
        objects={
            **snapshot.objects,
            "Pod": [{**pod, "status": {**pod["status"], "phase": "Succeeded"}} for pod in snapshot.of(Kind.POD)],
        },
    )
    assert ended.not_played == ("HorizontalPodAutoscaler shop/web",)


def test_without_the_data_of_pd_the_first_line_says_assumed(demo: Snapshot) -> None:
    """O4: never "each region with a leader throughout" when nobody asked PD."""
    outcome = play(msgspec.structs.replace(demo, pds=()), "spot-gone")
    assert outcome.answer == "HOLDS (PD assumed): no pod is interrupted"
    assert not any("throughout" in line for line in render(outcome))


def test_regions_that_stand_in_one_rack_lose_their_majority(demo: Snapshot) -> None:
    """O4: exactly the regions whose voters were there, counted in real regions when they are played by their share."""
    shot = PdShot(
        namespace="tidb",
        cluster="demo",
        members=demo.pds[0].members,
        stores=tuple(StoreShot(id=i + 1, address=f"demo-tikv-{i}.peer:20160") for i in range(3)),
        placements=tuple(
            PlacementShot(peers=peers, leader=leader, regions=10_000)
            for leader in (1, 2, 3)
            for peers in ((1, 2, 3), (leader,))
        ),
    )
    node = next(p["spec"]["nodeName"] for p in demo.of(Kind.POD) if p["metadata"]["name"] == "demo-tikv-1")
    outcome = play(msgspec.structs.replace(demo, pds=(shot,)), f"node-lost {node}", features={"handoff": True})
    (losses,) = outcome.played.regions
    assert (losses.regions, losses.without_quorum) == (60_000, 10_000)
    assert outcome.verdict == "broken"


def test_members_that_lose_their_machines_are_not_taken_for_two_away_at_once() -> None:
    """O4, E7: all of TiKV on spot nodes that just go: the regions' majority is lost, by nobody's hand."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(4, "n")
    cluster.add_nodes(3, "s", capacity="spot")
    for number in range(4):  # until the members stand
        cluster.cordon(f"n{number}")
    cluster.tidb_cluster("tidb", "demo", tidb=0, pd=0, with_pd=True)
    cluster.run_for(60)
    for number in range(4):
        cluster.cordon(f"n{number}", on=False)
    cluster.pd["tidb", "demo"].load(30)
    view = asyncio.run(_shot(cluster))
    snapshot = msgspec.structs.replace(taken(cluster), pds=(view,))
    outcome = play(snapshot, "spot-gone", features={"handoff": True}, unannounced=True)
    (losses,) = outcome.played.regions
    assert (losses.away_at_once, losses.cut_off, losses.left_without_quorum) == (0, (), 0)
    assert losses.without_quorum == 30
    assert not any("at once" in words for words in outcome.broken)


async def _shot(cluster: Cluster) -> PdShot:
    pd = cluster.pd["tidb", "demo"]
    return shot(Key("tidb", "demo"), await pd.observe(), await pd.regions())


def test_a_cluster_that_mooring_finds_out_of_order_is_put_right_first() -> None:
    """O4: what Mooring would do anyway is not blamed on the event, and a remark says how much it was."""
    cluster = Cluster(seed=5)
    cluster.add_nodes(4, "n")
    cluster.add_nodes(4, "s", capacity="spot")
    labels = {"vacant.io/optimize-scheduling": "true", "vacant.io/optimize-scheduling-mode": "all-in-on-demand"}
    cluster.deployment("shop", "web", 6, labels=labels)
    outcome = play(taken(cluster), "spot-gone", unannounced=True)
    assert outcome.answer == "HOLDS: no pod is interrupted"
    assert "Mooring fixed what it found" in outcome.played.remarks[0]


SCRIPT = """
import sys
from pathlib import Path
import msgspec
from mooring_lab.rehearse.snapshot import schema
from mooring_lab.rehearse.events.catalog import Options, acts
from mooring_lab.rehearse.play import everything_on, rehearse
from mooring.process import logs
from mooring.process.assemble import capacity_rules
from mooring.process.settings.config import Config
logs.configure("critical", "auto")
snapshot = schema.read(Path(sys.argv[1]))
config = everything_on(Config())
planned = acts(["node-lost@5s", "n7", "then", "spot-gone"], snapshot, capacity_rules(config), Options())
sys.stdout.buffer.write(msgspec.json.encode(rehearse(snapshot, planned, config)))
"""


def test_the_same_snapshot_event_and_seed_give_the_same_bytes(demo: Snapshot, tmp_path: Path) -> None:
    """O4, O5: in another process, under another hash seed, byte for byte; another seed is another draw."""
    path = tmp_path / "demo.json"
    schema.write(demo, path)
    here = msgspec.json.encode(play(demo, "node-lost@5s n7 then spot-gone"))
    environment = {"PYTHONHASHSEED": "77", "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", SCRIPT, str(path)]
    there = subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120).stdout
    assert here == there
    assert here != msgspec.json.encode(play(demo, "node-lost@5s n7 then spot-gone", seed=2))


def test_reports_are_short_by_default_and_say_what_is_hidden(demo: Snapshot) -> None:
    """O4: the verdict is line 1; like rows are one row; --all shows every row."""
    outcome = play(demo, "spot-gone")
    short, whole = render(outcome), render(outcome, everything=True)
    assert short[0] == outcome.answer
    assert any("24 × queued, notice" in line for line in short)
    assert short[-3].endswith(f"rows of {len(outcome.played.timeline)}, --all")
    assert short[-1] == "24 pods go: 24 move · 0 workloads short · 0 promises broken"
    assert len([line for line in whole if " queued " in line]) == 24


def test_the_worked_example_in_the_docs_is_what_it_says(demo: Snapshot) -> None:
    """O4: docs/rehearse.md shows what the command prints, line by line."""
    page = (Path(__file__).parents[2] / "docs" / "rehearse.md").read_text()
    shown = page.partition("$ mooring rehearse play rack-lost 2 --demo\n")[2].partition("\n…")[0].splitlines()
    assert len(shown) > 20
    assert render(play(demo, "rack-lost 2"))[: len(shown)] == shown
    other = page.partition("$ mooring rehearse play rack-lost 1 --demo\n")[2].splitlines()[0]
    assert play(demo, "rack-lost 1").answer == other


def test_a_play_that_is_cut_short_says_so(demo: Snapshot) -> None:
    """O4: a limit that comes before the end is a remark, not a verdict about what was not seen."""
    config = everything_on(Config())
    planned = acts(["rack-lost", "2"], demo, capacity_rules(config), Options())
    outcome = rehearse(demo, planned, config, limit_s=30.0)
    assert outcome.played.ended == "limit"
    assert "before everything had settled" in outcome.played.remarks[-1]
