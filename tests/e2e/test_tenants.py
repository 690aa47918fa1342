"""Tenants that take all they can get, on the real control plane: another namespace's hand-over and another's
rebalancing begin and end all the same, while none of theirs has ended (issue 21, line 5)."""

import asyncio
import json
import time

import msgspec
import pytest

from mooring_lab.control.cluster import Lab
from tests.e2e import spine_environment
from tests.e2e.test_mix_rebalance import ENABLED, MODE, SETTINGS, Environment
from tests.e2e.waiting import eventually, stands, until

pytestmark = pytest.mark.e2e

ELEVEN, PLACES = 11, 4
RESTART = "tidb.pingcap.com/restart="


async def test_eleven_endless_hand_overs_of_a_namespace_stop_no_other(lab: Lab, tmp_path):
    """Its leaders never leave: one hand-over is under way for ever, ten wait. Another cluster's member is handed over."""
    hostile = spine_environment.Environment(lab, tmp_path / "evil", tikv=ELEVEN + 1)
    hostile.directory.mkdir()
    settings = hostile.placement._settings
    hostile.placement._settings = msgspec.structs.replace(settings, transfer_s=(3600.0, 3600.0))
    good = spine_environment.Environment(lab, tmp_path, real_pd=lab.pd_server is not None)
    async with hostile, good as environment:
        environment.settings = {"pd-hosts": ["127.0.0.1:*"]}
        told = f"mooring.dev/pd-endpoints={hostile.pd_url}"
        await asyncio.to_thread(lab.kubectl, "annotate", "tc/demo", told, "-n", hostile.namespace)
        process = await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        for name in hostile.names:
            await asyncio.to_thread(hostile.annotate, name, RESTART)

        async def theirs(state):
            rows = (await process.ask("/api/v1/queue"))[state]
            return {row["id"] for row in rows if f"/{hostile.namespace}/" in row["subject"]}

        async def full():
            return len(await theirs("running")) == 1 and len(await theirs("waiting")) >= ELEVEN - 1

        await eventually(full, "one runs, ten wait", tell=environment.logs)
        endless = await theirs("running")
        uid, asked = await environment.uid("demo-tikv-0"), time.monotonic()
        await asyncio.to_thread(environment.annotate, "demo-tikv-0", RESTART)
        await eventually(lambda: environment.handed_over("demo-tikv-0", uid), tell=environment.logs)
        print(f"handed over in {time.monotonic() - asked:.1f} s")
        assert await theirs("running") == endless and environment.placement.interrupted() == 0
        hostile.observer.broken.clear()  # it tells pods apart by their names, which both clusters have


def kept_by_budgets(environment: Environment, namespace: str, count: int) -> None:
    """StatefulSets of one replica each, on spot nodes, with budgets that keep it: no replacement can come before it."""
    items = []
    for name in [f"app{n:02d}" for n in range(count)]:
        made = json.loads(environment.manifest(name, 1, {ENABLED: "true", MODE: "all-in-spot"}))
        made["kind"], made["metadata"]["namespace"] = "StatefulSet", namespace
        made["spec"] |= {"serviceName": name}
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": made["metadata"]}
        items += [made, budget | {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}}]
    environment.lab.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def test_blocked_moves_of_two_namespaces_stop_nobodys_rebalancing(lab: Lab, tmp_path):
    """Four places, and two namespaces that want eleven each, all kept by budgets: a third one's pod moves meanwhile."""
    environment = Environment(lab, tmp_path)
    environment.tenants += [lab.namespace("evil"), lab.namespace("vile")]
    try:
        environment.start()
        environment.settle(rebalance={**SETTINGS["mix"]["rebalance"], "at-once": PLACES})
        environment.deploy("web", 1, {ENABLED: "true", MODE: "all-in-spot"})
        for tenant in environment.tenants:
            kept_by_budgets(environment, tenant, ELEVEN)
        for tenant in environment.tenants:
            stands(lab, "wait", "statefulsets", "--all", "-n", tenant, "--for=jsonpath={.status.readyReplicas}=1")
        for tenant in environment.tenants:
            lab.kubectl("label", "statefulsets", "--all", "-n", tenant, "--overwrite", f"{MODE}=all-in-on-demand")

        def running():
            rows = environment.mooring.get("/api/v1/queue")["running"]
            return {row["id"] for row in rows if any(f"/{one}/" in row["subject"] for one in environment.tenants)}

        held = until(lambda: len(found := running()) >= PLACES and found, "all places are taken", every_s=1.0)
        assert environment.on_demand("web") == 0
        asked = time.monotonic()
        environment.label("web", **{MODE: "all-in-on-demand"})
        until(lambda: environment.on_demand("web") == 1, "it has moved")
        print(
            f"moved in {time.monotonic() - asked:.1f} s; {len(held & running())} of {len(held)} still held their places"
        )
        assert len(held & running()) == len(held)
    finally:
        environment.close()
