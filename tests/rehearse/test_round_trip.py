"""A cluster, its snapshot over HTTP, and the same event on both: the rehearsal tells what then happens."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from aiohttp.test_utils import TestServer

from mooring.clients.kube import HttpKubeApi
from mooring.clients.kube import load as load_kubeconfig
from mooring.clients.ports import RefusedError, UnansweredError
from mooring.clients.registry.choose import open_registry
from mooring.core.model.cluster import Key
from mooring.process.assemble import capacity_rules, make_pd
from mooring.process.clock import SystemRandomness, WallClock
from mooring.process.settings.config import Config
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.http.facade import Facade
from mooring_lab.cluster.pd.http import pd_app
from mooring_lab.cluster.sabakan.http import sabakan_app
from mooring_lab.demo.sandbox_stage import SandboxStage
from mooring_lab.rehearse.events.catalog import Options, acts
from mooring_lab.rehearse.outcome import RehearsalOutcome
from mooring_lab.rehearse.play import Play, everything_on, rehearse
from mooring_lab.rehearse.snapshot import schema
from mooring_lab.rehearse.snapshot.capture import take
from mooring_lab.rehearse.snapshot.load import Loaded
from mooring_lab.rehearse.snapshot.schema import Snapshot

CONFIG = everything_on(Config())


async def snapshot_of(cluster: Cluster, directory: Path, between: Callable[[], None] = lambda: None) -> Snapshot:
    """As `mooring rehearse snapshot` does: our own clients, over real sockets. `between`: after each list."""
    async with contextlib.AsyncExitStack() as stack:
        facade = await stack.enter_async_context(Facade(cluster.api.server))
        facade.write_kubeconfig(directory / "kubeconfig")
        urls: dict[str, tuple[str, ...]] = {}
        for (namespace, name), pd in cluster.pd.items():
            server = await stack.enter_async_context(TestServer(pd_app(pd)))
            urls[f"{namespace}/{name}"] = (str(server.make_url("")).rstrip("/"),)
        registry = ""
        if cluster.sabakan is not None:
            server = await stack.enter_async_context(TestServer(sabakan_app(cluster.sabakan)))
            registry = str(server.make_url("")).rstrip("/")
        connection = load_kubeconfig(str(directory / "kubeconfig"))
        config = msgspec.structs.replace(CONFIG, sabakan_url=registry, pd=urls)
        api = await stack.enter_async_context(HttpKubeApi(connection))
        return await take(
            connection,
            config,
            now=cluster.timeline.now(),
            make_pd=make_pd(WallClock(), SystemRandomness(), config, api),
            make_registry=open_registry,
            progress=lambda _: between(),
        )


def demo_cluster() -> Cluster:
    """The demo's, with nobody running on it any more."""
    stage = SandboxStage(seed=1)

    async def whole() -> None:
        await stage.build()
        await stage.rig.until(lambda: not stage.rig.unsettled())
        await stage.close()

    stage.run(whole)
    cluster = stage.rig.cluster
    cluster.run_for(120)  # the lease of the one that built it runs out
    return cluster


def same_on_the_original(cluster: Cluster, snapshot: Snapshot, words: str, options: Options) -> RehearsalOutcome:
    planned = acts(words.split(), snapshot, capacity_rules(CONFIG), options)
    return Play(snapshot, planned, CONFIG, seed=1, limit_s=1800.0, loaded=Loaded(cluster)).run()


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("spot-gone", Options()),
        ("spot-gone", Options(unannounced=True)),
        ("rack-lost 2", Options()),
        ("restart tidb/demo", Options()),
    ],
)
def test_a_rehearsal_agrees_with_the_cluster_it_was_taken_of(words: str, options: Options, tmp_path: Path) -> None:
    """O4: the same verdict, the same workloads short by as many, for as long within two seconds, the same pods gone."""
    cluster = demo_cluster()
    snapshot = asyncio.run(snapshot_of(cluster, tmp_path))
    planned = acts(words.split(), snapshot, capacity_rules(CONFIG), options)
    rehearsed = rehearse(snapshot, planned, CONFIG)
    happened = same_on_the_original(cluster, snapshot, words, options)
    assert rehearsed.verdict == happened.verdict
    assert _shapes(rehearsed) == _shapes(happened)
    for mine, real in zip(_by_name(rehearsed), _by_name(happened), strict=True):
        assert mine.away_s == pytest.approx(real.away_s, abs=2.0), mine.workload


def _shapes(outcome: RehearsalOutcome) -> object:
    played = outcome.played
    return (
        [(one.workload, one.worst, one.at_end) for one in _by_name(outcome)],
        sorted((one.promise, one.subject, one.worst) for one in played.breaches),
        Counter((one.workload, one.how) for one in played.gone),
        Counter(one.workload for one in played.come),
        [(losses.without_leader > 0, losses.without_quorum, losses.away_at_once) for losses in played.regions],
    )


def _by_name(outcome: RehearsalOutcome) -> list[object]:
    return sorted(outcome.played.interrupted, key=lambda one: one.workload)


def test_looking_changes_nothing(tmp_path: Path) -> None:
    """O4: not one write reaches the cluster or its PD."""
    cluster = demo_cluster()
    before = cluster.store.revision
    snapshot = asyncio.run(snapshot_of(cluster, tmp_path))
    assert cluster.store.revision == before
    assert snapshot.machines is not None
    assert (len(snapshot.machines), len(snapshot.pds), snapshot.remarks) == (12, 1, ())
    assert schema.parse(msgspec.json.encode(snapshot), "the snapshot") == snapshot


def test_long_lists_come_page_by_page(tmp_path: Path) -> None:
    """O4: more pods than a page holds are all there, once."""
    cluster = Cluster(seed=2)
    cluster.add_nodes(20)
    cluster.deployment("shop", "web", 1200)
    cluster.run_until_stable()
    snapshot = asyncio.run(snapshot_of(cluster, tmp_path))
    names = [pod["metadata"]["name"] for pod in snapshot.objects["Pod"]]
    assert len(names) == len(set(names)) == 1200


def test_all_lists_are_of_one_revision_or_it_says_how_far_apart(tmp_path: Path) -> None:
    """O4: a pod made while the lists are read is not in the snapshot, or a remark says which lists are newer."""
    cluster = Cluster(seed=2)
    cluster.add_nodes(3, "n")
    cluster.deployment("shop", "web", 2)
    cluster.run_until_stable()
    assert asyncio.run(snapshot_of(cluster, tmp_path)).remarks == ()
    busy = asyncio.run(snapshot_of(cluster, tmp_path, lambda: cluster.cordon("n1", on=cluster.store.revision % 2 == 0)))
    (remark,) = busy.remarks
    assert remark.startswith("not of one moment: ")
    assert "namespaces are of up to 0." in remark
    assert "changes after the first list (the API server does not have revision " in remark


def test_a_pd_or_registry_out_of_reach_is_a_remark(tmp_path: Path) -> None:
    """O4: the snapshot is taken, and says what is missing in it."""
    cluster = demo_cluster()
    cluster.pd["tidb", "demo"].go_dark()
    cluster.sabakan.go_dark()
    snapshot = asyncio.run(snapshot_of(cluster, tmp_path))
    assert (snapshot.pds, snapshot.machines) == ((), None)
    assert snapshot.remarks[0].startswith("PD of tidb/demo could not be looked at:")
    assert snapshot.remarks[1].startswith("the machine registry http://127.0.0.1:")


async def test_a_cluster_out_of_reach_is_an_error(tmp_path: Path) -> None:
    """O4: no half snapshot of a cluster that went away."""
    cluster = Cluster(seed=2)
    async with Facade(cluster.api.server) as facade:
        facade.write_kubeconfig(tmp_path / "kubeconfig")
    with pytest.raises((UnansweredError, RefusedError)):
        await take(load_kubeconfig(str(tmp_path / "kubeconfig")), CONFIG, now=0.0, make_pd=None, make_registry=None)


def test_keys_of_pds_are_those_of_their_clusters(tmp_path: Path) -> None:
    """O4: a PD belongs to the TidbCluster of its name."""
    cluster = demo_cluster()
    (shot,) = asyncio.run(snapshot_of(cluster, tmp_path)).pds
    assert Key(shot.namespace, shot.cluster) == Key("tidb", "demo")
    assert sum(one.regions for one in shot.placements) == len(cluster.pd["tidb", "demo"].server.tikv.groups)


def test_a_system_with_leaders_is_assumed_and_said_so(tmp_path: Path) -> None:
    """O4, L1: nobody asked its etcd, so the answer says what is assumed; it is restarted with a hand-over all the same."""
    cluster = Cluster(seed=3)
    cluster.add_nodes(4)
    cluster.stateful_set("data", "db", 3, annotations={"mooring.dev/leaders": "etcd"})
    cluster.run_until_stable()
    snapshot = asyncio.run(snapshot_of(cluster, tmp_path))
    node = next(p["spec"]["nodeName"] for p in cluster.pods("data", "db"))
    outcome = rehearse(snapshot, acts(["drain", node], snapshot, capacity_rules(CONFIG), Options()), CONFIG)
    assert "(etcd assumed)" in outcome.answer and outcome.answer.startswith("HOLDS"), outcome.answer
