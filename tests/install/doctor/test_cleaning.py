"""Cleanup takes back what marks say we did, and nothing else."""

import json

import pytest

from mooring.capabilities.registry import descriptors
from mooring.clients.ports import NotFoundError
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import (
    CORDONED_BY,
    GAVE_UP,
    HANDOFF,
    HOME,
    RESERVED_TAINT,
    RETIRING,
    Mark,
    write_mark,
    write_marks,
)
from mooring.install.cleanup.remove import traces
from mooring.process.admission.configurations import WebhookAddress, configurations, install


async def cleaned(rig) -> list[str]:
    found = await traces(rig.api, rig, "mooring-system")
    for trace in found:
        if trace.undo is not None:
            assert await trace.undo() == "", trace.what
    return [trace.what for trace in found]


def test_a_hand_over_that_was_killed_is_taken_back(played, killed_hand_over):
    """E6 after the end: the evict-leader scheduler, the mark, the status entry and the lease go; asking again finds none."""

    async def scenario(rig):
        pd = await killed_hand_over(rig)
        # What the killed one had begun is all there.
        before = await rig.api.get(Kind.TIDB_CLUSTER, "tidb", "demo")
        assert HANDOFF in before["metadata"]["annotations"]
        told = await cleaned(rig)
        assert any("have leaders again" in line for line in told) and "Lease mooring-system/mooring" in told
        after = await rig.api.get(Kind.TIDB_CLUSTER, "tidb", "demo")
        assert HANDOFF not in after["metadata"].get("annotations", {})
        assert not after.get("status", {}).get("tikv", {}).get("evictLeaderStatus")
        assert not pd.server.evict_list()
        assert await cleaned(rig) == []

    played(scenario)


def test_a_scheduler_on_a_store_that_was_given_up_on_is_a_persons(played):
    """E3: what was given up evicts nothing any more: its mark is only a memory, and goes without touching PD."""

    async def scenario(rig):
        store = min(s.id for s in rig.cluster.pd["tidb", "demo"].server.stores())
        memory = Mark(operator="5", source="handoff", reason="timeout", step=GAVE_UP, since=0.0, store_id=store)
        marks = {"metadata": {"annotations": {HANDOFF: write_marks({"demo-tikv-0": memory})}}}
        await rig.api.patch(Kind.TIDB_CLUSTER, "tidb", "demo", marks)
        await rig.cluster.pd["tidb", "demo"].add_evict_leader(store)
        assert "tidbcluster tidb/demo: drop 1 mark" in await cleaned(rig)
        assert rig.cluster.pd["tidb", "demo"].server.evict_list() == (store,)

    played(scenario)


def test_cordons_seats_and_memories_go_and_a_persons_cordon_stays(played):
    """A cordon that was there before us is a person's; a mark that cannot be read is nobody's to touch."""

    def mark(before):
        return write_mark(
            Mark(operator="3", source="fleet", reason="retiring", step="cordoned", since=0.0, before=before)
        )

    async def scenario(rig):
        patch = rig.api.patch
        seat = write_mark(
            Mark(operator="4", source="home", reason="home", step="ReserveNode", since=0.0, pod="tidb/demo-tidb-0")
        )
        ours = {CORDONED_BY: mark({"unschedulable": "false"}), RETIRING: mark({})}
        await patch(Kind.NODE, "", "n0", {"metadata": {"annotations": ours}, "spec": {"unschedulable": True}})
        theirs = {CORDONED_BY: mark({"unschedulable": "true"})}
        await patch(Kind.NODE, "", "n1", {"metadata": {"annotations": theirs}, "spec": {"unschedulable": True}})
        taints = [
            {"key": RESERVED_TAINT, "value": "demo-tidb-0", "effect": "NoSchedule"},
            {"key": "own", "effect": "NoSchedule"},
        ]
        await patch(
            Kind.NODE, "", "n2", {"metadata": {"annotations": {RESERVED_TAINT: seat}}, "spec": {"taints": taints}}
        )
        await patch(Kind.TIDB_CLUSTER, "tidb", "demo", {"metadata": {"annotations": {HANDOFF: "not a mark"}}})
        settings = {"metadata": {"namespace": "mooring-system", "name": "mooring-fleet"}, "data": {"template": "x"}}
        await rig.api.create(Kind.CONFIG_MAP, settings)
        sets = await rig.api.get(Kind.STATEFUL_SET, "tidb", "demo-tikv")
        memory = {"metadata": {"annotations": {HOME: json.dumps({"demo-tikv-0": "n0"})}}}
        await patch(Kind.STATEFUL_SET, "tidb", sets["metadata"]["name"], memory)

        told = await cleaned(rig)
        nodes = {name: await rig.api.get(Kind.NODE, "", name) for name in ("n0", "n1", "n2")}
        assert not nodes["n0"]["spec"].get("unschedulable") and nodes["n1"]["spec"]["unschedulable"]
        for node in nodes.values():
            assert not [key for key in node["metadata"].get("annotations", {}) if key.startswith("mooring.dev/")]
        assert [t["key"] for t in nodes["n2"]["spec"]["taints"]] == ["own"]
        owner = await rig.api.get(Kind.STATEFUL_SET, "tidb", "demo-tikv")
        assert HOME not in owner["metadata"].get("annotations", {})
        # What is not ours to touch is said again, and is still there.
        left = await cleaned(rig)
        assert len(left) == 2 and set(left) <= set(told)
        assert (await rig.api.get(Kind.CONFIG_MAP, "mooring-system", "mooring-fleet"))["data"] == {"template": "x"}
        cluster = await rig.api.get(Kind.TIDB_CLUSTER, "tidb", "demo")
        assert cluster["metadata"]["annotations"][HANDOFF] == "not a mark"

    played(scenario)


def test_interrupted_anywhere_it_is_run_again(played):
    """Stopped after any number of its steps, the next run takes back the rest; a third finds nothing."""

    async def litter(rig):
        mark = Mark(operator="3", source="fleet", reason="r", step="s", since=0.0, before={"unschedulable": "false"})
        cordoned = {"metadata": {"annotations": {CORDONED_BY: write_mark(mark)}}, "spec": {"unschedulable": True}}
        await rig.api.patch(Kind.NODE, "", "n0", cordoned)
        seat = Mark(operator="4", source="home", reason="home", step="ReserveNode", since=0.0, pod="tidb/demo-tidb-0")
        taints = [{"key": RESERVED_TAINT, "value": "demo-tidb-0", "effect": "NoSchedule"}]
        held = {"metadata": {"annotations": {RESERVED_TAINT: write_mark(seat)}}, "spec": {"taints": taints}}
        await rig.api.patch(Kind.NODE, "", "n1", held)
        evicting = Mark(operator="5", source="handoff", reason="r", step="EvictLeaders", since=0.0, store_id=store(rig))
        marks = write_marks({"demo-tikv-0": evicting})
        await rig.api.patch(Kind.TIDB_CLUSTER, "tidb", "demo", {"metadata": {"annotations": {HANDOFF: marks}}})
        await rig.cluster.pd["tidb", "demo"].add_evict_leader(store(rig))
        memory = {"metadata": {"annotations": {HOME: "{}"}}}
        await rig.api.patch(Kind.STATEFUL_SET, "tidb", "demo-tikv", memory)
        await install(rig.api, configurations(WebhookAddress("mooring-system"), b"ca"))
        for kind, name in (*(ours for one in descriptors() for ours in one.objects), (Kind.LEASE, "mooring")):
            await rig.api.create(kind, {"metadata": {"namespace": "mooring-system", "name": name}})

    def store(rig):
        return min(s.id for s in rig.cluster.pd["tidb", "demo"].server.stores())

    async def scenario(rig):
        await litter(rig)
        steps = len(await traces(rig.api, rig, "mooring-system"))
        # Two webhook configurations, cordon, reservation, evict-leader, record and lease; and the objects of features.
        assert steps == 7 + sum(len(one.objects) for one in descriptors())
        for done in range(steps):
            for trace in (await traces(rig.api, rig, "mooring-system"))[:done]:
                assert await trace.undo() == "", trace.what
            # The webhook configurations go together.
            assert len(await cleaned(rig)) == steps - (done + 1 if done == 1 else done)
            assert await cleaned(rig) == []
            assert not rig.cluster.pd["tidb", "demo"].server.evict_list()
            await litter(rig)

    played(scenario)


def test_of_one_feature_the_webhooks_go_that_no_other_needs(played):
    """Mooring may create no webhook configuration: while drain has a webhook in one, both stay, without those of mix; the
    last feature that is taken back takes both away, and what is nobody's of it is left alone."""

    async def taken_back(rig, *features):
        found = [t for t in await traces(rig.api, rig, "mooring-system", frozenset(features)) if t.feature in features]
        for trace in found:
            assert await trace.undo() == "", trace.what
        return [trace.what for trace in found]

    async def there(rig):
        kinds = Kind.MUTATING_WEBHOOK, Kind.VALIDATING_WEBHOOK
        standing = [await rig.api.get(kind, "", "mooring-mix") for kind in kinds]
        return [[webhook["name"] for webhook in one["webhooks"]] for one in standing]

    async def scenario(rig):
        address = WebhookAddress("mooring-system")
        await install(rig.api, configurations(address, b"ca"))
        assert await taken_back(rig, "home") == []
        assert await taken_back(rig, "mix") == [
            "MutatingWebhookConfiguration mooring-mix: take out pods.mooring.dev",
            "ValidatingWebhookConfiguration mooring-mix: take out workloads.mooring.dev",
        ]
        assert await there(rig) == [[], ["evictions.mooring.dev"]]
        assert await taken_back(rig, "mix") == []
        both = ["MutatingWebhookConfiguration mooring-mix", "ValidatingWebhookConfiguration mooring-mix"]
        assert await taken_back(rig, "drain") == both
        for features, serves in ((["mix"], ["webhook"]), (["drain", "mix"], ["webhook", "gate"])):
            await install(rig.api, configurations(address, b"ca", serves=serves))
            assert await taken_back(rig, *features) == both
            with pytest.raises(NotFoundError):
                await there(rig)

    played(scenario)
