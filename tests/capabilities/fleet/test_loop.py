"""The loop: settings in a ConfigMap, a query a minute, one settled change at a time, and a registry that misbehaves."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from mooring.capabilities.fleet.descriptor import report_of
from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.live.policy import RepairPolicy
from mooring.capabilities.fleet.planner import keys
from mooring.clients.ports import RefusedError, UnansweredError
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import (
    TEMPLATE,
    cordoned,
    roles_by_address,
    serial_of,
    set_settings,
    set_state,
    stored,
    taints_of,
)
from tests.sim.scenarios.fleet import annotations_of, build_fleet, fleet_config

Then = Callable[[Rig, list[str]], Awaitable[None]]


def play(then: Then, *, machines: int = 8, planes: int = 3, workers: int = 4, **policy: Any) -> None:
    rig = Rig(seed=1, config=fleet_config(**policy))

    async def whole(rig: Rig) -> None:
        addresses = build_fleet(rig, machines=machines, planes=planes, workers=workers)
        rig.start()
        await rig.until(lambda: len(stored(rig).members) == planes + workers)
        await rig.until(lambda: not rig.unsettled())
        await then(rig, addresses)

    rig.play(whole)


def constraints(planes: int, minimum: int, maximum: int = 0) -> dict[str, str]:
    text = f"control-plane-count: {planes}\nminimum-workers: {minimum}\nmaximum-workers: {maximum}\n"
    return {settings.CONSTRAINTS: text}


def of(rig: Rig, what: str) -> list[str]:
    return [a for a, assignment in roles_by_address(rig).items() if assignment == what]


def verdict(rig: Rig) -> Any:
    leader = rig.leader()
    assert leader is not None
    return leader.engine.verdicts.get(("fleet", "plan"))


def labels_of(rig: Rig, node: str) -> dict[str, str]:
    return dict(rig.cluster.store.get(Kind.NODE, "", node)["metadata"]["labels"])


def test_the_first_generation_is_stored_and_shown_on_the_nodes():
    """F5, F8, F9: control planes and workers stored as revision 1; labels and annotations of the tables on live Nodes."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        assert stored(rig).revision == 1
        assert len(of(rig, "control plane")) == 3
        assert len(of(rig, "worker")) == 4
        worker, plane = of(rig, "worker")[0], of(rig, "control plane")[0]
        await rig.until(lambda: keys.ZONE in labels_of(rig, worker) and keys.MASTER_ROLE in labels_of(rig, plane))
        entry = rig.cluster.sabakan.entries[serial_of(rig, worker)]
        assert labels_of(rig, worker)[keys.ZONE] == f"rack{entry.rack}"
        assert annotations_of(rig, Kind.NODE, "", worker)[keys.SERIAL] == entry.serial
        free = next(a for a in addresses if a not in roles_by_address(rig))
        assert keys.ZONE not in labels_of(rig, free), "a machine that is in no cluster is left alone"
        before = len(rig.writes)
        await rig.sleep(300)
        assert len(rig.writes) == before, "a second pass without news writes nothing"

    play(then)


def test_others_keys_stay_and_ours_follow_the_template():
    """F9: what the template brought is taken away again with it; labels and taints of other people stay."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        worker = of(rig, "worker")[0]
        rig.cluster.store.patch(Kind.NODE, "", worker, {"metadata": {"labels": {"team": "blue"}}})
        taint = {"key": "other.io/busy", "effect": "PreferNoSchedule"}
        rig.cluster.store.patch(Kind.NODE, "", worker, {"spec": {"taints": [taint]}})
        more = TEMPLATE.replace(
            "  control_plane: false\n",
            "  control_plane: false\n  labels: {tier: gold}\n"
            "  taints: [{key: our.io/x, value: y, effect: NoSchedule}]\n",
        )
        set_settings(rig, **{settings.TEMPLATE: more})
        await rig.until(lambda: taints_of(rig, worker).get("our.io/x") == "y:NoSchedule", limit_s=30)
        assert labels_of(rig, worker)["tier"] == "gold"
        assert stored(rig).decisions.revision != "", "and the new template's revision is stored"
        assert [e.action for e in stored(rig).history] == ["generate", "regenerate"]
        set_settings(rig, **{settings.TEMPLATE: TEMPLATE})
        await rig.until(lambda: "our.io/x" not in taints_of(rig, worker), limit_s=30)
        assert "tier" not in labels_of(rig, worker)
        assert labels_of(rig, worker)["team"] == "blue"
        assert "other.io/busy" in taints_of(rig, worker)

    play(then)


def test_a_templates_noexecute_waits_for_pods_that_do_not_tolerate_it():
    """O1: no taint of ours cuts a pod off outside the queue, not even one that a template brings."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        worker = of(rig, "worker")[0]
        for other in addresses:
            rig.cluster.cordon(other, on=other != worker)
        rig.cluster.deployment("shop", "web", 1)
        await rig.until(lambda: rig.cluster.ready("shop", "web") == 1)
        more = TEMPLATE.replace(
            "  control_plane: false\n",
            "  control_plane: false\n  taints: [{key: our.io/x, effect: NoExecute}]\n",
        )
        set_settings(rig, **{settings.TEMPLATE: more})
        await rig.until(lambda: all("our.io/x" in taints_of(rig, a) for a in of(rig, "worker") if a != worker))
        await rig.sleep(120)
        assert "our.io/x" not in taints_of(rig, worker)
        assert rig.cluster.ready("shop", "web") == 1
        leader = rig.leader()
        assert leader is not None
        assert leader.engine.verdicts[("fleet", f"node/{worker}")].reason == "no-execute"
        rig.cluster.store.delete(Kind.DEPLOYMENT, "shop", "web")
        await rig.until(lambda: "our.io/x" in taints_of(rig, worker), limit_s=200)
        verbs = [entry.verb for entry in leader.engine.history.of(f"node/{worker}")]
        assert "promoted" in verbs and "finished" in verbs, "the queue released the taint"

    play(then)


def test_changed_settings_are_acted_upon_at_once():
    """F9: a new constraint does not wait for the next minute."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        set_settings(rig, **constraints(3, 5))
        await rig.until(lambda: len(of(rig, "worker")) == 5, limit_s=3)

    play(then)


def test_changed_variables_are_asked_with_before_anything_is_planned():
    """F1, F9: after a change of the query no plan is made from the old answer."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        asked: list[Any] = []
        answer = rig.cluster.sabakan.machines

        async def machines(variables: Any = None) -> Any:
            asked.append(variables)
            return await answer(variables)

        rig.cluster.sabakan.machines = machines
        set_settings(rig, **{settings.VARIABLES: '{"having": {"racks": [0, 1, 2, 3]}}'})
        await rig.sleep(2)
        assert asked == [{"having": {"racks": [0, 1, 2, 3]}}]

    play(then)


def test_bad_settings_leave_the_last_good_ones_in_force():
    """F9: a template that is none is reported; the cluster goes on by the one before."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        set_settings(rig, **{settings.TEMPLATE: "nodes: []"})
        await rig.sleep(5)
        assert verdict(rig).reason == "misconfigured"
        spare = next(a for a in addresses if a not in roles_by_address(rig))
        assert spare
        set_state(rig, of(rig, "worker")[0], MachineState.UNHEALTHY)
        await rig.until(lambda: len(of(rig, "worker")) == 5, limit_s=90)
        assert verdict(rig).reason == "misconfigured"

    play(then)


def test_switched_off_it_does_nothing():
    """F9: disabled in the settings, nothing is planned and nothing is asked."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        set_settings(rig, **{settings.ENABLED: "false"})
        set_settings(rig, **constraints(3, 5))
        before = len(rig.writes)
        await rig.sleep(200)
        assert len(rig.writes) == before
        assert verdict(rig).reason == "disabled"

    play(then)


@pytest.mark.parametrize("what", ["dark", "500", "422", "empty", "slow"])
def test_a_registry_that_does_not_answer_removes_nothing(what: str):
    """F1, F3: no answer, an error, an empty list: nothing changes, it is said, and a good answer mends it."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        registry, before = rig.cluster.sabakan, roles_by_address(rig)
        answer = registry.machines

        async def broken(variables: Any = None) -> Any:
            if what == "500":
                raise UnansweredError("HTTP 500")
            if what == "422":
                raise RefusedError("GraphQL: bad enum", 422)
            return await answer({"having": {"roles": ["nobody"]}})

        if what == "dark":
            registry.go_dark()
        elif what == "slow":
            registry.slow(60)
        else:
            registry.machines = broken
        set_settings(rig, **constraints(3, 5))  # something to do, if only it could be seen
        await rig.until(lambda: verdict(rig) is not None and verdict(rig).reason == "registry-unreachable", limit_s=200)
        await rig.sleep(300)
        assert {a: roles_by_address(rig)[a] for a in before} == before
        registry.lighten()
        registry.slow(0)
        registry.machines = answer
        await rig.until(lambda: len(of(rig, "worker")) == 5, limit_s=200)

    play(then)


def test_most_workers_vanishing_at_once_is_held_while_other_actions_go_on():
    """F5: the guard stops the removal alone: a new worker is still added; confirmed, they go."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        gone = of(rig, "worker")[:3]
        for address in gone:
            del rig.cluster.sabakan.entries[serial_of(rig, address)]
        await rig.until(lambda: verdict(rig).reason == "removal-blocked", limit_s=100)
        assert set(gone) <= set(roles_by_address(rig))
        set_settings(rig, **constraints(3, 5))
        await rig.until(lambda: any(a not in gone and a in of(rig, "worker") for a in addresses), limit_s=100)
        assert set(gone) <= set(roles_by_address(rig)), "still there"
        set_settings(rig, **{settings.CONFIRMED: msgspec.json.encode(sorted(gone)).decode()})
        await rig.until(lambda: not set(gone) & set(roles_by_address(rig)), limit_s=100)

    play(then, machines=16)


def test_half_of_the_control_planes_vanishing_changes_nothing():
    """F3: etcd would lose its quorum; the administrator is told."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        before = roles_by_address(rig)
        for address in of(rig, "control plane")[:2]:
            del rig.cluster.sabakan.entries[serial_of(rig, address)]
        await rig.until(lambda: verdict(rig).reason == "quorum", limit_s=100)
        await rig.sleep(300)
        assert roles_by_address(rig) == before

    play(then)


def test_a_control_plane_is_replaced_one_member_and_one_revision_at_a_time():
    """O1, F5: two bad ones: the second waits until the first one's successor is a Ready node."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        planes = of(rig, "control plane")
        for spare in [a for a in addresses if a not in roles_by_address(rig)]:
            rig.cluster.store.delete(Kind.NODE, "", spare)
        for address in planes[:2]:
            set_state(rig, address, MachineState.UNHEALTHY)
        await rig.until(lambda: len(set(of(rig, "control plane")) - set(planes)) == 1, limit_s=100)
        await rig.sleep(300)
        first = set(of(rig, "control plane"))
        assert len(first) == 3
        assert len(first - set(planes)) == 1, "its successor is no Ready node yet: the second waits"
        rig.cluster.add_node(next(iter(first - set(planes))))
        await rig.until(lambda: not set(of(rig, "control plane")) & set(planes[:2]), limit_s=100)
        assert len(of(rig, "control plane")) == 3
        actions = [e.action for e in stored(rig).history]
        assert actions.count("replace-control-plane") == 2

    play(then, machines=12)


def test_a_control_plane_that_is_not_ready_blocks_other_changes_but_not_its_own_cure():
    """O1: the fact takes `control-plane`'s room; replacing the dead one passes, growing waits."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        dead, bad = of(rig, "control plane")[:2]
        rig.cluster.kubelets.silence(dead)
        leader = rig.leader()
        assert leader is not None
        await rig.until(lambda: bool(leader.engine.queue.facts("control-plane")), limit_s=200)
        set_state(rig, bad, MachineState.UNHEALTHY)
        await rig.sleep(200)
        assert bad in of(rig, "control plane"), "another member's change waits for the fact"
        set_state(rig, bad, MachineState.HEALTHY)
        set_state(rig, dead, MachineState.UNREACHABLE)
        await rig.until(lambda: dead not in of(rig, "control plane"), limit_s=300)

    play(then, machines=12)


def test_an_added_node_that_is_not_there_yet_holds_the_next_change_up():
    """F9: until the added node is Ready the pass says `settling`; then the next change comes."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        new = rig.cluster.sabakan.register("NEW", rack=5, state=MachineState.HEALTHY).ipv4[0]
        for spare in [a for a in addresses if a not in roles_by_address(rig)]:
            set_state(rig, spare, MachineState.UNHEALTHY)
        set_settings(rig, **constraints(3, 5))
        await rig.until(lambda: new in roles_by_address(rig), limit_s=90)
        late = rig.cluster.sabakan.register("LATE", rack=6, state=MachineState.HEALTHY).ipv4[0]
        set_settings(rig, **constraints(3, 6))
        await rig.sleep(200)
        assert late not in roles_by_address(rig)
        assert verdict(rig).reason == "settling"
        rig.cluster.add_node(new, rack=5)
        await rig.until(lambda: late in roles_by_address(rig), limit_s=10)

    play(then)


def test_a_worker_above_the_maximum_is_emptied_before_it_leaves():
    """O2, F5: a healthy machine that is decided out is stored as leaving, emptied, and only then out."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        rig.cluster.deployment("shop", "web", 8)
        await rig.until(lambda: rig.cluster.ready("shop", "web") == 8)
        set_settings(rig, **constraints(1, 4, 4))
        lowest = 8

        def out() -> bool:
            nonlocal lowest
            lowest = min(lowest, rig.cluster.ready("shop", "web"))
            return len(roles_by_address(rig)) == 5 and not rig.unsettled()

        await rig.until(out, limit_s=1200)
        assert lowest >= 7, "one replica at a time"
        gone = [a for a in addresses if a not in roles_by_address(rig) and cordoned(rig, a)]
        assert gone, "the cordon stays until the node is deleted"

    play(then, settle_timeout_s=60.0)


def test_a_retired_worker_goes_once_it_was_retired_long_enough():
    """F6: with variables that list RETIRED ones: taint `retired`, and out after five minutes."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        set_settings(rig, **{settings.VARIABLES: '{"notHaving": null}'})
        worker = of(rig, "worker")[0]
        set_state(rig, worker, MachineState.RETIRING)
        await rig.until(lambda: roles_by_address(rig).get(worker) == "worker, retiring", limit_s=200)
        set_state(rig, worker, MachineState.RETIRED)
        await rig.until(lambda: taints_of(rig, worker).get(keys.STATE_TAINT) == "retired:NoExecute", limit_s=100)
        at = rig.clock.now()
        await rig.until(lambda: worker not in roles_by_address(rig), limit_s=900)
        assert rig.clock.now() - at >= 240
        assert [e.action for e in stored(rig).history][-1] == "decrease-workers"

    play(then)


def test_metrics_have_ckes_names_and_ours_beside_them():
    """F9: workers by role, unused machines, success and time as CKE has them; targets and unmet constraints besides."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        leader = rig.leader()
        assert leader is not None
        await rig.sleep(61)
        leader.metrics.look_at(leader.engine, 0)
        text = leader.metrics.render().decode()
        assert "cke_sabakan_integration_successful 1.0" in text
        assert 'cke_sabakan_workers{role="cs"} 4.0' in text
        assert "cke_sabakan_unused_machines 1.0" in text
        assert "mooring_fleet_role_target" in text
        set_settings(rig, **constraints(3, 9))
        await rig.sleep(5)
        leader.metrics.look_at(leader.engine, 0)
        text = leader.metrics.render().decode()
        assert "cke_sabakan_integration_successful 0.0" in text
        assert 'mooring_fleet_unmet{constraint="minimum-workers"}' in text

    play(then)


def test_the_node_of_a_machine_that_left_is_deleted_once_it_is_silent_for_long():
    """F13: off unless asked; never while it is Ready, is still in the cluster, or while the registry does not answer."""
    everybody = {"delete_nodes": True, "delete_nodes_after_s": 600.0}
    for policy, deleted in ((everybody, True), ({}, False)):

        async def then(rig: Rig, addresses: list[str], *, deleted: bool = deleted) -> None:
            def there(address: str) -> bool:
                return rig.cluster.store.find(Kind.NODE, "", address) is not None

            gone, silent = of(rig, "worker")[:2]
            set_state(rig, gone, MachineState.RETIRING, MachineState.RETIRED)
            for address in (gone, silent):
                rig.cluster.kubelets.silence(address)
            await rig.until(lambda: gone not in roles_by_address(rig), limit_s=300)
            await rig.sleep(400)
            assert there(gone), "not at once: it may come back"
            rig.cluster.sabakan.go_dark(1200)
            await rig.sleep(900)
            assert there(gone), "nothing is concluded while the registry is silent"
            await rig.sleep(900)
            assert there(gone) is not deleted
            assert there(silent), "its machine is in the cluster"
            assert all(map(there, [a for a in addresses if a != gone]))

        play(then, **policy)


def test_the_running_mooring_reports_plan_registry_bad_rows_and_repairs():
    """F10, F15: what `mooring fleet status` asks for."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        sick = of(rig, "worker")[0]
        for address in addresses:
            rig.cluster.cordon(address, on=address != sick)
        rig.cluster.deployment("shop", "web", 1)
        await rig.until(lambda: rig.cluster.ready("shop", "web") == 1)
        set_state(rig, sick, MachineState.UNHEALTHY)
        await rig.sleep(90)
        found = report_of(rig.leader().engine, rig.config)
        assert (found["on"], found["registry"]["error"], found["left_out"]) == (True, "", [])
        assert [(r["address"], r["state"]) for r in found["repairs"]] == [(sick, "queued")]
        assert found["machines"] == {"UNHEALTHY": [sick]}, "mooring maintain --state asks for it"
        assert f"mooring drain {sick}" in found["repairs"][0]["why"], "a node that serves is not touched"
        rig.cluster.sabakan.go_dark(300)
        await rig.sleep(90)
        found = report_of(rig.leader().engine, rig.config)
        assert found["registry"]["error"] and found["plan"]["reason"] == "registry-unreachable"

    play(then, repair=RepairPolicy(command=("false",), after_s=0.0))
