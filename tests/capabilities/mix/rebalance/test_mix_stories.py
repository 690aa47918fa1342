"""What a tired person reads: `mooring mix explain` in the situations that matter, word for word."""

import msgspec
import pytest

from mooring.capabilities.drain.signals import INTERRUPT_AT
from mooring.capabilities.mix.capability import Mix
from mooring.capabilities.mix.explain import interrupted, report
from mooring.capabilities.mix.labels import CUSTOM, ENABLED, MODE
from mooring.capabilities.mix.policy import MixPolicy, OnShortage
from mooring.cli.mix import LONGEST_LINE, node_line, workload_lines, workload_row
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.controllers import manifests
from mooring_lab.stage.scenarios.mix import NAMESPACE, slow_template
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.sim.scenarios.mix import relabel

RIGHT = "2026-01-31T08:15:00Z"
CAPACITY = "node.kubernetes.io/capacity"


def _told(stage: Stage, name: str):
    """What the API answers about one Deployment, and the interrupted nodes."""
    leader = stage.rig.leader()
    assert leader is not None
    engine = leader.engine
    mix = engine.capabilities["mix"]
    assert isinstance(mix, Mix)
    workload = engine.world.workload(Kind.DEPLOYMENT, Key(NAMESPACE, name))
    assert workload is not None
    one = report(mix, workload, engine.world, engine.queue, engine.now, engine.running)
    nodes = [msgspec.to_builtins(node) for node in interrupted(mix, engine.world, engine.now)]
    return msgspec.to_builtins(one), nodes


def _tied(to: str):
    return manifests.pod_template({"app": "web"}, nodeSelector={CAPACITY: to})


async def unmanaged(stage: Stage) -> None:
    await stage.deployed("web", 2, "off")


async def misconfigured(stage: Stage) -> None:
    await stage.deployed("web", 2, "off")
    relabel(stage.rig, Kind.DEPLOYMENT, "web", {ENABLED: "yes", MODE: "most", CUSTOM: "x"})
    await stage.rig.sleep(5.0)


async def tied_to_spot(stage: Stage) -> None:
    await stage.deployed("web", 3, "majority-in-on-demand", template=_tied("spot"))


async def tied_to_on_demand(stage: Stage) -> None:
    await stage.deployed("web", 3, "all-in-spot", template=_tied("on-demand"))


async def no_room(stage: Stage) -> None:
    await stage.deployed("web", 3, "all-in-spot")
    for node in ("n0", "n1", "n2"):
        stage.cluster.cordon(node)
    stage.cluster.annotate(Kind.NODE, "", "n3", {INTERRUPT_AT: "2099-01-01T00:00:00Z"})
    relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "custom", CUSTOM: "1"})
    await stage.rig.sleep(30.0)


async def shortage(stage: Stage) -> None:
    for node in ("n0", "n1", "n2", "n3"):
        stage.cluster.cordon(node)
    stage.cluster.deployment(NAMESPACE, "web", 1, labels={ENABLED: "true", MODE: "all-in-on-demand"})
    await stage.rig.sleep(90.0)


async def budget(stage: Stage) -> None:
    await stage.deployed("web", 3, "all-in-spot")
    stage.cluster.pdb(NAMESPACE, "web", {"app": "web"}, min_available=3)
    await stage.rig.sleep(5.0)
    relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "majority-in-on-demand"})
    await stage.rig.sleep(30.0)


async def notice(stage: Stage) -> None:
    await stage.deployed("web", 2, "all-in-spot", template=slow_template("web", 40))
    stage.cluster.cloud.notice(min(stage.cluster.nodes_of(NAMESPACE, "web").values()))
    await stage.rig.sleep(4.0)


async def switched_off(stage: Stage) -> None:
    await stage.deployed("web", 3, "all-in-spot", template=slow_template("web", 20))
    relabel(stage.rig, Kind.DEPLOYMENT, "web", {ENABLED: None})
    await stage.rig.sleep(12.0)


async def rolled_out(stage: Stage) -> None:
    await stage.deployed("web", 3, "custom", 1, template=slow_template("web", 20))
    stage.cluster.set_image(Kind.DEPLOYMENT, NAMESPACE, "web", "web:2")
    await stage.rig.sleep(5.0)


@pytest.mark.parametrize(
    ("scenario", "first", "remedy"),
    [
        (unmanaged, "Deployment/web is not managed", f"kubectl -n shop label deployment/web {ENABLED}=true"),
        (
            misconfigured,
            f"Deployment/web is not managed: label {ENABLED} is 'yes'; it must be exactly true or false",
            "kubectl -n shop edit deployment/web",
        ),
        (
            tied_to_spot,
            "Deployment/web is blocked: 3 pods tied to the other class: its nodeSelector asks for spot nodes, its slot is …",
            "change the node rules of its pod template, or its mode",
        ),
        (
            tied_to_on_demand,
            "Deployment/web is blocked: no spot node has room (4 nodes: 4 excluded by its own node rules)",
            "change the node rules of its pod template, or its mode",
        ),
        (
            no_room,
            "Deployment/web is waiting: no on-demand node has room (4 nodes: 1 interrupted, 3 cordoned)",
            "add on-demand nodes, or ask for fewer: kubectl -n shop label deployment/web",
        ),
        (
            shortage,
            "finds no on-demand node (4 nodes: 4 cordoned), on-shortage: wait",
            "mix.on-shortage to relax",
        ),
        (
            budget,
            "Deployment/web is blocked: pdb/web allows 0 disruptions (3 of 3)",
            "scale up, or widen the budget",
        ),
        (notice, "Deployment/web is moving: 1 pod leaving, still serving; 1 of 2 others Ready", ""),
        (switched_off, "Deployment/web is not managed: web is switched off; 2 pods with our affinity left", ""),
        (rolled_out, "Deployment/web is waiting: web has a rollout in progress", ""),
    ],
)
def test_line_one_is_the_answer_and_names_what_blocks(scenario, first: str, remedy: str):
    """M10: at most 110 characters; what was cut stands below, whole; where a person can help, how."""

    async def whole(stage: Stage) -> None:
        await scenario(stage)
        one, _ = _told(stage, "web")
        story = workload_lines(one)
        assert first in story[0]
        assert all(len(line) <= LONGEST_LINE for line in story[:1])
        assert remedy in one["remedy"]
        rest = "\n".join(story)
        for part in (*one["problems"], *([] if one["problems"] else one["wrong"].split("; "))):
            assert part in rest, "nothing of what is wrong is hidden"
        assert workload_row(one)[0] == one["state"]

    policy = MixPolicy(on_shortage=OnShortage.WAIT) if scenario is shortage else MixPolicy()
    Stage(policy).play(whole)


def test_a_detached_pod_is_still_in_the_picture():
    """M8, M10: where each pod stands: also the one that belongs to nobody just now, with the time it has."""

    async def scenario(stage: Stage) -> None:
        await notice(stage)
        one, nodes = _told(stage, "web")
        (leaving,) = [pod for pod in one["pods"] if "detached" in pod["note"]]
        assert "serves until its replacement is Ready, 11" in leaving["note"]
        assert leaving["ready"] and leaving["node"] == nodes[0]["node"]
        assert len(one["pods"]) == 3
        assert node_line(nodes[0]).startswith(f"{leaving['node']} is interrupted in 11")
        assert node_line(nodes[0]).endswith("1 pod on it")

    Stage().play(scenario)


def test_nodes_are_told_of_in_every_state():
    """M8: about to go, past its moment, a notice that cannot be read, and one that stays after all."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 1, "all-in-spot")
        stage.cluster.annotate(Kind.NODE, "", "s1", {INTERRUPT_AT: "soon"})
        stage.cluster.annotate(Kind.NODE, "", "s2", {INTERRUPT_AT: "2001-01-01T00:00:00Z"})
        await stage.rig.sleep(5.0)
        _, nodes = _told(stage, "web")
        assert [node_line(node) for node in nodes] == [
            f"s1 is not emptied: annotation {INTERRUPT_AT} is 'soon', which is not a time; write it as {RIGHT}",
            "s2 should be gone by now (annotation vacant.io/interrupt-at), 0 pods on it",
        ]

    Stage().play(scenario)


def test_the_api_tells_every_slot_and_the_table_says_what_it_hides():
    """M10: -o json is complete; the table shows forty slots and how to see the rest."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 60, "majority-in-on-demand")
        one, _ = _told(stage, "web")
        assert len(one["sequence"]) == 60 and len(one["pods"]) == 60
        assert any(line.endswith("… (60, -o json shows all)") for line in workload_lines(one))

    Stage(on_demand=6, spot=6).play(scenario)
