"""Issue 17: settings are not read once at start-up: the sections of the capabilities are followed while running."""

import logging

import msgspec
import pytest
import structlog

from mooring.capabilities.mix.admission.book import SlotBook
from mooring.capabilities.registry import descriptor
from mooring.core.model.kinds import Kind
from mooring.process.assemble import capacity_rules
from mooring.process.blackbox.file import recordings
from mooring.process.settings.config import BlackBoxSettings, Config, from_file, written_out
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.mix import NAMESPACE, admitting, physical, slow_template, switched_on
from tests.blackbox.environment import replayed

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

OTHER = {
    "balance": {"leader-tolerance": 9.0},
    "fleet": {"recheck-s": 7.0},
    "handoff": {"recheck-s": 9.0},
    "home": {"mode": "prefer"},
    "mix": {"deployment-default": "all-in-on-demand", "capacity": {"labels": [{"key": "pool", "spot_values": ["s"]}]}},
}


def changed(config: Config, **sections: dict) -> Config:
    return from_file(msgspec.to_builtins(written_out(config)) | sections)


def rig_of(**more) -> Rig:
    rig = Rig(seed=3, config=Config(features={"mix": True}, **more))
    rig.cluster.add_nodes(3, "n", capacity="on-demand")
    rig.cluster.add_nodes(3, "s", capacity="spot")
    return rig


@pytest.mark.parametrize("name", OTHER)
def test_every_section_is_followed(name):
    """The capability decides by the new policy, and nothing is said to need a restart."""

    async def scene(rig: Rig) -> None:
        replica = rig.start("first")
        await rig.until(lambda: replica.engine.deciding)
        kind = descriptor(name).policy
        new = changed(rig.config, **{name: OTHER[name]})
        assert replica.apply(new) == []
        await rig.sleep(1.0)
        assert replica.engine.capabilities[name].policy == new.policy(kind) != rig.config.policy(kind)
        assert replica.world.rules == capacity_rules(new)
        assert replica.world.check() == []
        assert replica.apply(new) == []

    rig_of().play(scene)


def test_mix_moves_and_admits_by_the_new_section(tmp_path):
    """deployment-default changes from spot to on-demand: pods that run are moved, new ones admitted accordingly, a
    reservation that stands stays; and the recording of it replays to the same instructions."""
    rig = rig_of(blackbox=BlackBoxSettings(dir=str(tmp_path)))

    async def scene(rig: Rig) -> None:
        replica = rig.start("first")
        await admitting(rig)
        labels = {k: v for k, v in switched_on("all-in-spot").items() if not k.endswith("-mode")}
        rig.cluster.deployment(NAMESPACE, "web", 3, labels=labels, template=slow_template("web", 1.0))
        await rig.until(lambda: rig.cluster.ready(NAMESPACE, "web") == 3)
        assert physical(rig, "web").count("spot") == 3
        book = replica.world.index(SlotBook)
        replica.apply(changed(rig.config, mix={"deployment-default": "all-in-on-demand"}))
        await rig.until(lambda: physical(rig, "web").count("on-demand") == 3, 300.0)
        assert replica.world.index(SlotBook) is book is replica.webhook.reviewer.admission.book
        rig.cluster.deployment(NAMESPACE, "new", 2, labels=labels, template=slow_template("new", 1.0))
        await rig.until(lambda: rig.cluster.ready(NAMESPACE, "new") == 2)
        assert physical(rig, "new") == ["on-demand", "on-demand"]
        replica.blackbox.close()

    rig.play(scene)
    (path,) = recordings(tmp_path)
    difference, replay = replayed(path)
    assert difference is None and replay.instructions > 0


def test_a_detector_that_is_gone_lifts_what_it_asked_for():
    """A node with a notice of a detector that is removed from the settings: the cordon that was ours is lifted."""

    async def scene(rig: Rig) -> None:
        replica = rig.start("first")
        await admitting(rig)
        node = min(name for name in replica.world.node_classes() if name.startswith("s"))
        told = {"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}}
        rig.cluster.store.patch(Kind.NODE, "", node, told)
        await rig.until(lambda: replica.world.node(node).unschedulable, 60.0)
        replica.apply(changed(rig.config, mix={"interruption": {"detectors": []}}))
        await rig.until(lambda: not replica.world.node(node).unschedulable, 120.0)

    rig_of().play(scene)
