"""E12, H1: TiDB members of tidb-operator v2 go home. It remembers no node, so the memory is Mooring's alone."""

import json

from mooring.capabilities.home.policy import HomePolicy
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HOME
from mooring.process.settings.config import Config
from mooring_lab.cluster.controllers.podstate import ready
from mooring_lab.cluster.controllers.tidb.operator_v2 import instances, pod_name
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.home import ask_mooring

NS, NAME = "tidb", "demo"
TIDB = [pod_name(name, "tidb") for name in instances("basic", "tidb", 3)]


def nodes_of(rig):
    pods = [rig.cluster.store.find(Kind.POD, NS, name) for name in TIDB]
    found = {p["metadata"]["name"]: p["spec"].get("nodeName", "") for p in pods if p is not None and ready(p)}
    return {name: node for name, node in found.items() if node}


def places(rig):
    cluster = rig.cluster.store.get(Kind.TIDB_V2, NS, NAME)
    return json.loads(cluster["metadata"].get("annotations", {}).get(HOME, "{}"))


def play(scenario):
    rig = Rig(seed=3, config=Config(features={"home": True}, policies=(HomePolicy(),)))

    async def whole(rig):
        ask_mooring(rig, scheduler="default-scheduler")
        rig.cluster.add_nodes(3)
        rig.cluster.tidb_cluster_v2(NS, NAME, tidb=3)
        await rig.until(lambda: len(nodes_of(rig)) == 3)
        rig.start()
        await rig.until(rig.leads)
        await rig.until(lambda: len(places(rig)) == 3, limit_s=120)
        rig.cluster.add_nodes(6, "roomy-", cpu="64", memory="256Gi")
        await scenario(rig)

    rig.play(whole)


def test_recreated_members_come_home():
    """E12, H1: deleted by hand or rolled by the operator: the same nodes, although roomier ones are free."""

    async def scenario(rig):
        homes = nodes_of(rig)
        assert {name: place["node"] for name, place in places(rig).items()} == homes
        for name in TIDB:
            rig.cluster.store.delete(Kind.POD, NS, name)
        await rig.until(lambda: not nodes_of(rig))
        await rig.until(lambda: len(nodes_of(rig)) == 3, limit_s=300)
        assert nodes_of(rig) == homes

    play(scenario)


def test_a_new_home_and_one_that_is_scaled_in():
    """E12, H3: a home that is cordoned gives way, and where the member lands is its home; one scaled in is forgotten."""

    async def scenario(rig):
        first, *_, last = TIDB
        rig.cluster.cordon(nodes_of(rig)[first])
        rig.cluster.store.delete(Kind.POD, NS, first)
        await rig.until(lambda: first not in nodes_of(rig))
        await rig.until(lambda: len(nodes_of(rig)) == 3, limit_s=300)
        await rig.until(lambda: places(rig)[first]["node"] == nodes_of(rig)[first], limit_s=120)
        rig.cluster.tidb_v2.groups[NS, NAME] = {"tidb": ("basic", 2)}
        rig.cluster.tidb_v2.queue.add((NS, NAME))
        rig.cluster.store.delete(Kind.POD, NS, last)
        await rig.until(lambda: set(places(rig)) == set(TIDB[:2]), limit_s=120)

    play(scenario)


def test_switched_off_they_do_not():
    """E12, H4: `mooring.dev/home: "false"` on the Cluster: nothing is remembered for it any more, and they may move."""

    async def scenario(rig):
        homes = nodes_of(rig)
        rig.cluster.store.patch(Kind.TIDB_V2, NS, NAME, {"metadata": {"labels": {"mooring.dev/home": "false"}}})
        await rig.sleep(5.0)
        for name in TIDB:
            rig.cluster.store.delete(Kind.POD, NS, name)
        await rig.until(lambda: not nodes_of(rig))
        await rig.until(lambda: len(nodes_of(rig)) == 3, limit_s=300)
        assert nodes_of(rig) != homes

    play(scenario)
