"""Asking Home is free: over a simulated day, evaluating twice gives the same and changes nothing (rule 1)."""

import pytest

from mooring.core.model.kinds import Kind
from mooring.process.settings.config import Config
from mooring_lab.stage.rig import Rig
from tests.capabilities.asking import Asker

NS = "tidb"


@pytest.mark.parametrize("keeps_status", [True, False])
def test_asking_twice_over_a_day(keeps_status):
    """Rule 1: members come and go with their nodes reserved, beside a tidb-operator and without one."""
    rig, asker = Rig(seed=3, config=Config(features={"home": True})), Asker("home")

    async def pass_by(seconds, every_s=3.0):
        for _ in range(int(seconds / every_s)):
            await rig.sleep(every_s)
            asker.ask(rig.leader().engine)

    async def day(rig):
        cluster = rig.cluster
        cluster.add_nodes(4)
        toleration = {"key": "mooring.dev/reserved", "operator": "Exists", "effect": "NoSchedule"}
        cluster.tidb_cluster(NS, "demo", tidb=3)
        cluster.change(
            Kind.TIDB_CLUSTER, NS, "demo",
            lambda tc: {
                **tc,
                "metadata": {**tc["metadata"], "labels": {"mooring.dev/reserve-node": "true"}},
                "spec": {**tc["spec"], "tidb": {**tc["spec"]["tidb"], "tolerations": [toleration]}},
            },
        )  # fmt: skip
        cluster.stateful_set(NS, "web", 2, labels={"mooring.dev/home": "true"})
        await rig.sleep(1.0)
        await rig.until(lambda: cluster.ready(NS, "demo-tidb") == 3)
        cluster.tidb_operator.stopped = not keeps_status
        rig.start()
        await rig.until(rig.leads)
        await pass_by(90)
        for name in ("demo-tidb-0", "web-1", "demo-tidb-2"):
            cluster.store.delete(Kind.POD, NS, name)
            await pass_by(10, 0.1)
        await pass_by(150)

    rig.play(day)
    assert asker.evaluations["home"] > 100
    assert asker.steps["home"] > 0
    assert asker.notes["home"] > 100
