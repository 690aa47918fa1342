"""PD lives with its pods' machines: a leader that dies is succeeded, and without a majority nobody answers."""

import pytest

from mooring.capabilities.mix.policy import MixPolicy
from mooring.clients.ports import UnansweredError
from mooring.core.model.capacity import CapacityRules
from mooring.core.model.kinds import Kind
from mooring.process.settings.config import Config
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers.podstate import node_of
from mooring_lab.judge.lines import promises, workloads
from mooring_lab.rehearse.observer import Observer
from mooring_lab.rehearse.regions import Members
from mooring_lab.rehearse.snapshot.load import load
from mooring_lab.rehearse.snapshot.schema import Snapshot

PODS = tuple(f"demo-pd-{i}" for i in range(3))


def stage(demo: Snapshot) -> tuple[Cluster, Observer, Members]:
    cluster = load(demo, 1).cluster
    wanted, lines = workloads(cluster.store), promises(cluster.store, Config().policy(MixPolicy), mix=True)
    observer = Observer(cluster, wanted, lines, CapacityRules(), by_us=lambda _: False, say=lambda *_: None)
    return cluster, observer, Members(cluster, observer)


def machine_of(cluster: Cluster, pod: str) -> str:
    return node_of(cluster.store.get(Kind.POD, "tidb", pod))


async def test_members_come_and_go_with_their_machines(demo: Snapshot) -> None:
    """O4: one machine: another member leads, twelve seconds later; two: nobody answers, until one is back."""
    cluster, _, members = stage(demo)
    pd = cluster.pd["tidb", "demo"]
    assert (pd.settings.members, pd.leader, members.look()) == (PODS, "demo-pd-0", [])
    cluster.kubelets.silence(machine_of(cluster, "demo-pd-0"))
    assert members.look() == ["PD of tidb/demo lost its leader demo-pd-0; demo-pd-1 takes over"]
    cluster.run_for(13)
    assert (pd.leader, pd.away, members.look()) == ("demo-pd-1", "", [])
    second = machine_of(cluster, "demo-pd-1")
    cluster.kubelets.silence(second)
    assert "no majority: 1 of 3" in members.look()[0]
    with pytest.raises(UnansweredError):
        await pd.observe()
    cluster.kubelets.resume(second)
    assert "answers again: 2 of 3" in members.look()[0]
    assert (await pd.observe()).leader == "demo-pd-1"


def test_a_store_stops_with_its_machine_and_not_minutes_later(demo: Snapshot) -> None:
    """O4: Kubernetes still calls the pod Ready; its leaders are gone all the same, and the replica does not serve."""
    cluster, observer, _ = stage(demo)
    pod = cluster.store.get(Kind.POD, "tidb", "demo-tikv-1")
    assert observer.serves(pod)
    cluster.kubelets.silence(node_of(pod))
    store = cluster.pd["tidb", "demo"].store_of("demo-tikv-1")
    assert store is not None
    assert (store.alive, observer.serves(cluster.store.get(Kind.POD, "tidb", "demo-tikv-1"))) == (False, False)
    assert [one.pod for one in observer.gone if "tikv" in one.pod] == ["tidb/demo-tikv-1"]


def test_lines_are_read_from_the_cluster(demo: Snapshot) -> None:
    """O4: one replica each, PD's quorum, and the on-demand floor of every workload that Mix spreads."""
    cluster, _, _ = stage(demo)
    found = {(p.subject, p.rule): p.least for p in promises(cluster.store, Config().policy(MixPolicy), mix=True)}
    assert found["StatefulSet tidb/demo-pd", "quorum"] == 2
    assert ("StatefulSet tidb/demo-tikv", "quorum") not in found
    assert found["Deployment shop/web", "on-demand floor"] == 2
    assert found["Deployment shop/cart", "on-demand floor"] == 3
    assert ("Deployment shop/api", "on-demand floor") not in found
    assert sum(rule == "one replica" for _, rule in found) == 7
    assert not any(p.rule == "on-demand floor" for p in promises(cluster.store, Config().policy(MixPolicy), mix=False))
