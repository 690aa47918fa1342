"""Rule 5, the contract is the whole contract: a sixth capability is its own package and one line of the registry.

That line is added here for the test; run, `why`, metrics, manifests, doctor, cleanup, the API and sim pick it up.
"""

import msgspec
import pytest

from mooring.capabilities import registry
from mooring.core.engine.why.asking import explain
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import State
from mooring.install.cleanup.begun import begun
from mooring.install.rights import rights_of, rules
from mooring.process.assemble import capabilities, queue_settings
from mooring.process.metrics import Metrics
from mooring.process.settings.config import Config
from mooring.process.settings.features import UnknownFeatureError, parse_features
from mooring.sim.rig import Rig


@pytest.fixture
def sixth(monkeypatch):
    monkeypatch.setitem(registry.CAPABILITIES, "sixth", "tests.capabilities.sixth.descriptor")


def test_without_its_line_it_is_unknown():
    """The test below shows the line, not a special case: without it nobody knows the name."""
    with pytest.raises(UnknownFeatureError, match="unknown feature 'sixth'"):
        parse_features("sixth=true")


def test_features_limits_and_capabilities_know_it(sixth):
    """Run: the feature gate, the queue's limits and the replica's capabilities are made from descriptors."""
    assert parse_features("sixth=true") == ({"sixth": True}, [])
    assert queue_settings(Config()).limit("sixth") == 2
    assert "sixth" in {capability.name for capability in capabilities(Config())}


def test_rights_and_manifests_know_it(sixth):
    """Manifests and doctor: its rights are granted when it is on, and only then."""
    assert ("sixth", registry.descriptor("sixth").rights[1]) in rights_of({"sixth"})
    assert any("sixth.example" in rule["apiGroups"] for rule in rules({"sixth"}, own=False))
    assert not any("sixth.example" in rule["apiGroups"] for rule in rules({"handoff"}, own=False))


def test_it_runs_and_is_explained_counted_and_cleaned_up(sixth):
    """Run, `why`, metrics, the API, doctor and cleanup, on a replica in the sandbox."""
    rig = Rig(seed=1, config=Config(features={"sixth": True}))
    for number in range(3):
        rig.cluster.add_node(f"n{number}")

    async def play(rig):
        replica = rig.start("a")
        engine = replica.engine
        await rig.until(lambda: engine.deciding)
        await rig.api.patch(Kind.NODE, "", "n1", {"metadata": {"labels": {"sixth": "asked"}}})

        def done():
            node = engine.world.node("n1")
            return node is not None and node.labels.get("sixth") == "done" and not engine.running

        await rig.until(done, every_s=0.05)
        look(engine, replica.config)

    rig.play(play)


def look(engine, config):
    """Everything that makes itself from the descriptor, while the replica leads."""
    assert {"queued", "promoted", "finished"} <= {e.verb for e in engine.history.timeline if e.source == "sixth"}
    answer = explain(engine, "node/n1")
    assert answer.state == State.STABLE
    metrics = Metrics()
    metrics.look_at(engine, 0)
    text = metrics.render().decode()
    assert "mooring_sixth_evaluated 3.0" in text
    assert 'mooring_operators_running{source="sixth"}' in text
    left = begun((), engine.world.nodes(), (), frozenset())
    assert [(one.feature, one.what) for one in left] == [("sixth", "node n1: sixth")]
    assert msgspec.to_builtins(registry.descriptor("sixth").report(engine, config))["nodes"] == ["n0", "n1", "n2"]


def test_sim_draws_it_too(sixth):
    """Sim: random subsets of features are drawn from the same list."""
    from mooring.sim.whole.plan import draw_plan

    drawn = {name for seed in range(40) for name in draw_plan(seed).shape.features}
    assert "sixth" in drawn
