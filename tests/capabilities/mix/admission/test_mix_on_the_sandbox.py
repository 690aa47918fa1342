"""Admission on the sandbox: its API server calls us, its controllers create pods in bursts, on virtual time."""

import asyncio

import pytest

from mooring.capabilities.mix.labels import RESERVATION
from mooring.core.model.kinds import Kind
from mooring.process.admission.configurations import NAME
from mooring.process.settings.config import Config
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.mix import NAMESPACE, admitting, switched_on

MAJORITY = {
    "vacant.io/optimize-scheduling": "true",
    "vacant.io/optimize-scheduling-mode": "majority-in-on-demand",
}


def rig() -> Rig:
    made = Rig(config=Config(features={"mix": True}))
    for i in range(4):
        made.cluster.add_node(f"safe-{i}", capacity="on-demand")
        made.cluster.add_node(f"spot-{i}", capacity="spot")
    return made


def pods(rig: Rig) -> list[dict]:
    return [p for p in rig.cluster.store.list(Kind.POD) if not p["metadata"].get("deletionTimestamp")]


def split(rig: Rig) -> tuple[int, int]:
    classes = [p["metadata"].get("labels", {}).get("vacant.io/affinity") for p in pods(rig)]
    return classes.count("on-demand"), classes.count("spot")


async def installed(rig: Rig) -> None:
    await rig.until(rig.leads)
    await rig.until(lambda: rig.cluster.store.find(Kind.MUTATING_WEBHOOK, "", NAME) is not None)


def test_a_burst_and_its_nodes():
    """M3, M4: a Deployment of 30 gets exactly 16 on-demand replicas, each on an on-demand node."""

    async def scenario(rig: Rig) -> None:
        rig.start()
        await installed(rig)
        rig.cluster.deployment("default", "web", 30, labels=MAJORITY)
        await rig.until(lambda: len(pods(rig)) == 30 and all(p["spec"].get("nodeName") for p in pods(rig)))
        assert split(rig) == (16, 14)
        for pod in pods(rig):
            if pod["metadata"]["labels"]["vacant.io/affinity"] == "on-demand":
                assert pod["spec"]["nodeName"].startswith("safe-")

    rig_ = rig()
    rig_.play(scenario)


def test_nobody_alive_admits_unchanged():
    """Availability first: while no replica is alive, pods are created as their owners wrote them."""

    async def scenario(rig: Rig) -> None:
        rig.start()
        await installed(rig)
        rig.kill()
        rig.cluster.deployment("default", "web", 5, labels=MAJORITY)
        await rig.until(lambda: len(pods(rig)) == 5)
        assert split(rig) == (0, 0)

    rig().play(scenario)


def test_a_replica_that_dies_before_it_has_answered_admits_unchanged():
    """Availability first: the pod that a follower kept waiting for the next leader is created when the follower dies."""

    async def scenario(rig: Rig) -> None:
        rig.start("leads")
        await installed(rig)
        rig.start("follows")
        await rig.sleep(5)
        rig.kill("leads")
        rig.cluster.stateful_set("default", "db", 1, labels=MAJORITY)
        await rig.sleep(0.5)
        assert pods(rig) == []
        rig.kill("follows")
        await rig.until(lambda: len(pods(rig)) == 1, limit_s=30)
        assert split(rig) == (0, 0)

    rig().play(scenario)


def test_nobody_leads_before_it_has_seen_the_cluster():
    """M4, issue 20: a replica that has just been started takes no lease that another could have: until its first lists are
    in it could not place a pod."""

    async def scenario(rig: Rig) -> None:
        replica, seen = rig.start(), []
        started = replica.elector._on_started
        replica.elector._on_started = lambda: (seen.append(replica.engine.synced), started())
        await rig.until(rig.leads)
        assert seen == [True]

    rig().play(scenario)


def test_a_bad_label_is_refused_by_the_api_server():
    """M1: the API server refuses a Deployment whose labels make no sense, in our words."""
    from mooring.clients.ports import RefusedError

    async def scenario(rig: Rig) -> None:
        rig.start()
        await installed(rig)
        body = {
            "metadata": {
                "name": "bad",
                "namespace": "default",
                "labels": {"vacant.io/optimize-scheduling-mode": "most"},
            },
            "spec": {
                "selector": {"matchLabels": {"app": "x"}},
                "template": {
                    "metadata": {"labels": {"app": "x"}},
                    "spec": {"containers": [{"name": "c", "image": "x"}]},
                },
            },
        }
        with pytest.raises(RefusedError, match="all-in-on-demand, all-in-spot"):
            await rig.api.create(Kind.DEPLOYMENT, body)

    rig().play(scenario)


def test_a_rolling_restart_of_our_replicas_lets_no_pod_through_without_our_patch():
    """M4, issue 20: ten pods a second while both replicas are replaced one after the other: 38 of 1,045 came through
    unpatched. Requests wait for the next leader, who is told that it is needed."""

    async def scenario(rig: Rig) -> None:
        rig.cluster.add_nodes(8, "n", capacity="on-demand", pods=500)
        rig.start("a")
        await admitting(rig)
        rig.start("b")
        await rig.sleep(5.0)
        names = []

        async def load() -> None:
            for number in range(300):
                names.append(f"w{number}")
                rig.cluster.deployment(NAMESPACE, names[-1], 1, labels=switched_on())
                await rig.sleep(0.1)

        loading = asyncio.ensure_future(load())
        for old, new in (("a", "c"), ("b", "d"), ("c", "e")):
            await rig.sleep(5.0)
            rig.start(new)
            await rig.sleep(2.0)
            await rig.stop(old)
        await loading
        await rig.sleep(5.0)
        pods = rig.cluster.store.list(Kind.POD, NAMESPACE)
        assert len(pods) == 300
        assert [p["metadata"]["name"] for p in pods if RESERVATION not in p["metadata"].get("annotations", {})] == []

    Rig(seed=1, config=Config(features={"mix": True})).play(scenario)
