"""Rule 1: drain, evaluated twice while a node is emptied and an eviction is held, answers the same and changes nothing."""

from mooring.capabilities.drain.nodes import DRAIN
from mooring.core.model.kinds import Kind
from tests.capabilities.asking import Asker
from tests.capabilities.drain.test_gate_scenarios import SHOP, deployed, gated, play
from tests.capabilities.drain.test_nodes import reported


def test_asking_twice_gives_the_same_and_changes_nothing():
    """Rule 1: keys were asked, some with notes, and some answers were proposals."""
    asker = Asker("drain")

    async def scenario(rig):
        await gated(rig)
        await deployed(rig)
        (node,) = {p["spec"]["nodeName"] for p in rig.cluster.store.list(Kind.POD, SHOP)}
        rig.cluster.annotate(Kind.NODE, "", node, {DRAIN: '{"by": "ann"}'})

        def drained():
            asker.ask(rig.leader().engine)
            return reported(rig).get(node, {}).get("state") == "drained"

        await rig.until(drained)

    play(scenario)
    assert asker.evaluations["drain"] > 20
    assert asker.proposals["drain"] + asker.notes["drain"] + asker.steps["drain"] > 5
