"""EvictionRequest of Kubernetes 1.37, with its controller played by the test (D6)."""

from itertools import pairwise

import pytest

from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, RESPONDER
from mooring.core.model.times import moment, rfc3339
from mooring_lab.cluster.controllers import podstate
from tests.capabilities.drain.test_gate_scenarios import SHOP, deployed, play, pods_of, refused, serving, the_pod, tidb

EVICTOR = "imperative-eviction.k8s.io/evictor"
BY = "upgrade.example.com/nodes"


async def with_evictions(rig, nodes=6):
    """The API server has the API, and Mooring is asked about new pods."""
    rig.cluster.api.server.has_evictions = True
    rig.cluster.add_nodes(nodes, "n")
    rig.start("first")
    await rig.until(rig.leads)
    await rig.until(lambda: any(hooks(rig)))


def hooks(rig):
    return [h["name"] for one in rig.cluster.store.list(Kind.MUTATING_WEBHOOK) for h in one["webhooks"]]


def responders(pod):
    return {one["name"]: one["priority"] for one in pod["spec"].get("evictionResponders") or ()}


class Requested:
    """One Eviction, and what the evictionrequest-controller of 1.37 does with it: one responder at a time, by priority;
    the last is Kubernetes' own, which uses `pods/eviction`."""

    def __init__(self, rig, pod, namespace=None):
        self._rig, self._pod = rig, pod
        meta = pod["metadata"]
        self.namespace, self.name = namespace or meta["namespace"], f"eviction-{meta['name']}"
        target = {"pod": {"name": meta["name"], "uid": meta["uid"]}}
        names = sorted(responders(pod), key=responders(pod).get, reverse=True)
        self._set({"spec": {"target": target}}, [*names, EVICTOR])

    def _set(self, body, names):
        started = {"startTime": rfc3339(self._rig.clock.now())}
        status = {
            "requesters": [{"name": BY, "intent": "Eviction"}],
            "targetResponders": [
                {"name": n, "priority": 1, "state": "Inactive" if i else "Active"} for i, n in enumerate(names)
            ],
            "responders": [{"name": n, **({} if i else started)} for i, n in enumerate(names)],
        }
        metadata = {"namespace": self.namespace, "name": self.name}
        self._rig.cluster.store.create(Kind.EVICTION, {"metadata": metadata, **body, "status": status})

    @property
    def _object(self):
        return self._rig.cluster.store.get(Kind.EVICTION, self.namespace, self.name)

    @property
    def said(self):
        return next(one for one in self._object["status"]["responders"] if one["name"] == RESPONDER)

    def _turn(self, *states):
        """As the controller writes: all states at once."""
        status = self._object["status"]
        turns = [{**one, "state": state} for one, state in zip(status["targetResponders"], states, strict=True)]
        changed = {**self._object, "status": {**status, "targetResponders": turns}}
        self._rig.cluster.store.update(Kind.EVICTION, changed, status=True)

    def withdraw(self):
        self._turn("Canceled", "Inactive")

    async def evict(self):
        """The last one's turn."""
        self._turn("Completed", "Active")
        name = self._pod["metadata"]["name"]
        return await refused(self._rig, name, "system:serviceaccount:kube-system:evictionrequest-controller")


def test_a_new_pod_that_is_guarded_names_mooring_and_no_other_does():
    """D6: at creation, where the API server has the API; others' responders stay."""

    async def scenario(rig):
        await with_evictions(rig)
        assert hooks(rig) == ["responders.mooring.dev"]
        await deployed(rig)
        await deployed(rig, "plain", annotations={})
        (guarded,), (plain,) = pods_of(rig), pods_of(rig, "plain")
        assert responders(guarded)[RESPONDER] > 10_000  # before the one that manages it
        assert not responders(plain)

    play(scenario)


def test_where_the_api_server_has_no_evictions_nobody_is_asked():
    """D6: 1.36, or the gate is off: no webhook for pods, and pods stay as they are."""

    async def scenario(rig):
        rig.cluster.add_nodes(4, "n")
        rig.start("first")
        await rig.until(lambda: bool(rig.cluster.store.list(Kind.VALIDATING_WEBHOOK)))
        await deployed(rig)
        assert not hooks(rig)
        assert not responders(pods_of(rig)[0])

    play(scenario)


def test_a_request_is_answered_with_its_replacement_first():
    """D6, D2: a heartbeat with words, then completed once the replacement is Ready; Kubernetes' own responder evicts
    it then at once, and the Deployment of one replica was served all the time."""

    async def scenario(rig):
        await with_evictions(rig)
        await deployed(rig)
        (pod,) = pods_of(rig)
        one, least = Requested(rig, pod), [1]

        def completed():
            least[0] = min(least[0], serving(rig))
            return "completionTime" in one.said

        await rig.until(lambda: "heartbeatTime" in one.said, limit_s=10.0)
        assert "0 of 1 others Ready" in one.said["message"] or "prepared" in one.said["message"]
        await rig.until(completed, limit_s=120.0)
        assert serving(rig) == 2  # beside it
        assert not await one.evict()
        await rig.until(lambda: len(pods_of(rig)) == 1 and not rig.unsettled(), limit_s=300.0)
        assert least[0] == 1

    play(scenario)


def test_a_tikv_pod_that_is_requested_away_has_no_leader_left():
    """D6, D1: its leaders are off before Mooring is done; meanwhile it says how long that takes."""

    async def scenario(rig):
        await with_evictions(rig)
        pd = await tidb(rig)
        pd.load(600)
        pod, said = rig.pod("tidb", "demo-tikv-1"), []
        one = Requested(rig, pod)

        def completed():
            said.append(dict(one.said))
            return "completionTime" in one.said

        await rig.until(completed, limit_s=900.0)
        assert any("leaders gone" in each.get("message", "") for each in said)
        estimates = [each for each in said if "expectedCompletionTime" in each]
        assert all(moment(e["expectedCompletionTime"]) > moment(e["heartbeatTime"]) for e in estimates)
        beats = sorted({moment(each["heartbeatTime"]) for each in said if "heartbeatTime" in each})
        assert all(later - sooner >= 20.0 for sooner, later in pairwise(beats[:-1]))
        one._turn("Completed", "Active")
        await rig.api.as_client("evictor").evict("tidb", "demo-tikv-1")
        await rig.until(lambda: rig.cluster.ready("tidb", "demo-tikv") == 3 and not rig.unsettled(), limit_s=900.0)
        assert not pd.interruptions

    play(scenario)


@pytest.mark.parametrize("how", ["withdrawn", "deleted"])
def test_what_nobody_requests_any_more_is_undone(how):
    """D6: the pod goes back to its ReplicaSet, unmarked, and serves on."""

    async def scenario(rig):
        await with_evictions(rig)
        await deployed(rig, start_s=60.0)
        name, _ = the_pod(rig)
        (pod,) = pods_of(rig)
        one = Requested(rig, pod)
        marked = lambda: LEAVING in podstate.annotations_of(rig.pod(SHOP, name))
        await rig.until(marked, limit_s=10.0)
        if how == "withdrawn":
            one.withdraw()
        else:
            rig.cluster.store.delete(Kind.EVICTION, SHOP, one.name)
        await rig.until(lambda: not marked() and len(pods_of(rig)) == 1 and not rig.unsettled(), limit_s=120.0)
        assert the_pod(rig)[0] == name

    play(scenario)


def test_a_request_that_cannot_be_prepared_ends_with_max_hold():
    """D6, D3: no node for its replacement: it is completed after `max-hold-s`, and the next responder decides."""

    async def scenario(rig):
        await with_evictions(rig)
        await deployed(rig)
        for node in rig.cluster.store.list(Kind.NODE):
            rig.cluster.cordon(node["metadata"]["name"])
        one = Requested(rig, pods_of(rig)[0])
        began = rig.clock.now()
        await rig.until(lambda: "completionTime" in one.said, limit_s=700.0)
        assert 300.0 <= rig.clock.now() - began < 400.0
        assert "could not be prepared" in one.said["message"]

    play(scenario, max_hold_s=300.0)


def test_an_eviction_of_another_namespace_asks_nobody():
    """D6: its target is by name and UID within its own namespace; one that names a pod of another does nothing."""

    async def scenario(rig):
        await with_evictions(rig)
        await deployed(rig)
        (pod,) = pods_of(rig)
        Requested(rig, pod, namespace="tenant")
        await rig.sleep(60.0)
        assert LEAVING not in podstate.annotations_of(pods_of(rig)[0])

    play(scenario)
