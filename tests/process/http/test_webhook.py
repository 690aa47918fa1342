"""The webhook over real TLS on loopback: what it answers, to whom, and how a follower passes a request on."""

import asyncio
import base64
import json
import ssl
import time
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import jsonpatch
import pytest

from mooring.capabilities.drain.policy import DrainPolicy
from mooring.capabilities.mix.admission.book import SlotBook
from mooring.capabilities.mix.admission.decide import MixAdmission
from mooring.capabilities.mix.capability import Mix
from mooring.capabilities.mix.labels import ENABLED
from mooring.capabilities.mix.policy import MixPolicy
from mooring.core.engine.engine import Engine
from mooring.core.model.cluster import Owner, ReplicaSet, Workload
from mooring.core.model.events import Listed, Seen
from mooring.core.model.kinds import Kind
from mooring.core.queue import Queue
from mooring.core.world.world import World
from mooring.process.admission import reviewer
from mooring.process.admission.certificates import advance
from mooring.process.admission.gatekeeper import Gatekeeper
from mooring.process.admission.reloading_tls import ReloadingTls
from mooring.process.admission.reviewer import PATIENCE_S, Reviewer
from mooring.process.admission.server import LeaderForwarder, WebhookServer
from mooring.process.clock import SystemRandomness

RECORDED = Path(__file__).parents[2] / "capabilities" / "mix" / "admission" / "data" / "admission_reviews.jsonl"


class Notes:
    """A recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.outcomes: list[str] = []

    def event(self, kind, namespace, name, *, uid, reason, message, warning=False) -> None:
        self.events.append((reason, message))

    def count(self, name, labels, by=1) -> None:
        self.outcomes.append(labels["outcome"])

    def observe(self, *_) -> None: ...


class Stand:
    """One replica's worth of webhook."""

    def __init__(self, material, *, leads=True) -> None:
        self.world = World()
        for kind in (Kind.POD, Kind.NODE, Kind.REPLICA_SET, Kind.DEPLOYMENT, Kind.STATEFUL_SET):
            self.world.apply(Listed(kind, ()))
        self.leads, self.ready = leads, True
        self.notes = Notes()
        for index in Mix().indexes():
            self.world.register(index)
        self.reviewer = Reviewer(
            MixAdmission(MixPolicy(), self.world.index(SlotBook)),
            self.world,
            time.monotonic,
            SystemRandomness(),
            self.notes,
            Gatekeeper(Engine(self.world, Queue(), ()), DrainPolicy(), [].append, time.monotonic, tuple, self.notes),
            leads=lambda: self.leads,
            ready=lambda: self.ready,
        )
        self.front = ReloadingTls()
        self.front.swap(material)
        self.server = WebhookServer(self.reviewer, self.front, "127.0.0.1", 0)
        self.trust = ssl.create_default_context(cadata=material.bundle.decode())

    def deployment(self, replicas=3, mode="custom", **labels) -> None:
        marks = {ENABLED: "true", f"{ENABLED}-mode": mode, f"{ENABLED}-mode-custom-on-demand": "1"} | labels
        for kind, row in (
            (Kind.DEPLOYMENT, Workload("Deployment", "default", "web", "d", "1", marks, replicas=replicas)),
            (
                Kind.REPLICA_SET,
                ReplicaSet("default", "web-1", "rs", "1", Owner("Deployment", "web", "d"), replicas=replicas),
            ),
        ):
            self.world.apply(Seen(kind, row))
        self.reviewer.world_moved()

    async def post(self, path: str, body, **kwargs):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{self.server.port}{path}"
            async with session.post(url, data=data, ssl=kwargs.pop("ssl", self.trust), **kwargs) as answer:
                return answer.status, await answer.text()

    async def admit(self, body, path="/admit/pods"):
        status, text = await self.post(path, body)
        assert status == 200, text
        review = json.loads(text)
        assert review["kind"] == "AdmissionReview"
        assert review["apiVersion"] == "admission.k8s.io/v1"
        assert review["response"]["uid"] == body["request"]["uid"]
        return review["response"]


@pytest.fixture(scope="module")
def material():
    return advance(None, ["127.0.0.1"], time.time())


@pytest.fixture
def patient(monkeypatch):
    """A request waits for its leader however busy this machine is."""
    monkeypatch.setattr(reviewer, "LEADER_S", 60.0)


@asynccontextmanager
async def serving(stand: Stand):
    await stand.server.start()
    try:
        yield stand
    finally:
        await stand.server.stop()


@pytest.fixture
async def stand(material):
    async with serving(Stand(material)) as one:
        yield one


def pod_review(uid="request-1", **spec):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": True}
    pod = {
        "metadata": {"generateName": "web-1-", "namespace": "default", "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c"}]} | spec,
    }
    request = {"uid": uid, "operation": "CREATE", "namespace": "default", "object": pod, "dryRun": False}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def workload_review(labels, old=None, kind="Deployment"):
    def of(marks):
        return {"kind": kind, "metadata": {"name": "web", "namespace": "default", "labels": marks}, "spec": {}}

    request = {
        "uid": "w",
        "kind": {"group": "apps", "version": "v1", "kind": kind},
        "namespace": "default",
        "name": "web",
        "operation": "CREATE" if old is None else "UPDATE",
        "object": of(labels),
        "oldObject": None if old is None else of(old),
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def patch_of(response):
    assert response["patchType"] == "JSONPatch"
    return json.loads(base64.b64decode(response["patch"]))


async def test_a_pod_is_patched(stand):
    """M3: an opted-in pod gets a JSON patch that applies, with its class in it."""
    stand.deployment()
    review = pod_review()
    response = await stand.admit(review)
    assert response["allowed"] is True
    pod = jsonpatch.apply_patch(review["request"]["object"], patch_of(response))
    assert pod["metadata"]["labels"] == {"vacant.io/affinity": "on-demand"}
    assert stand.notes.outcomes == ["on-demand"]


async def test_recorded_reviews_get_answers(stand):
    """Every AdmissionReview recorded from a real kube-apiserver is answered, allowed, and matched by its uid."""
    for line in RECORDED.read_text().splitlines():
        recorded = json.loads(line)
        response = await stand.admit(recorded["body"], recorded["path"])
        assert response["allowed"] is True


async def test_the_recorded_deployment_is_warned_about_its_floor(stand):
    """M2: the recorded Deployment without a mode is allowed, with the warning that its floor is 0."""
    for line in RECORDED.read_text().splitlines():
        recorded = json.loads(line)
        if recorded["body"]["request"]["kind"]["kind"] == "Deployment":
            response = await stand.admit(recorded["body"], recorded["path"])
            assert "floor is 0" in response["warnings"][0]


async def test_a_workload_is_refused_in_words(stand):
    """M1: a bad label is denied with what is wrong and what would be right; a good one is allowed."""
    response = await stand.admit(workload_review({ENABLED: "yes"}), "/admit/workloads")
    assert response["allowed"] is False
    assert response["status"]["code"] == 422
    assert "Deployment default/web: label vacant.io/optimize-scheduling is 'yes'" in response["status"]["message"]
    good = workload_review({ENABLED: "true"}, kind="StatefulSet")
    assert (await stand.admit(good, "/admit/workloads"))["allowed"] is True
    unchanged = workload_review({ENABLED: "yes"}, old={ENABLED: "yes"})
    assert (await stand.admit(unchanged, "/admit/workloads"))["allowed"] is True


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "not an AdmissionReview"),
        (b'{"request": {"uid": "x", "object": {"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}}", "more values than"),
        (b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}', "request"),
        (b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": ""}}', "no uid"),
        (b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "x"}}', "v1beta1"),
    ],
)
@pytest.mark.parametrize("path", ["/admit/pods", "/admit/workloads"])
async def test_nonsense_gets_a_400_that_says_why(stand, path, body, says):
    """A body that is no AdmissionReview is answered with 400 and one sentence, never with a 500."""
    status, text = await stand.post(path, body)
    assert status == 400
    assert says in text


async def test_wrong_method_and_path(stand):
    """Only POST, only the three paths."""
    async with aiohttp.ClientSession() as session:
        base = f"https://127.0.0.1:{stand.server.port}"
        async with session.get(f"{base}/admit/pods", ssl=stand.trust) as answer:
            assert answer.status == 405
        async with session.post(f"{base}/admit/nothing", ssl=stand.trust) as answer:
            assert answer.status == 404


async def test_an_unknown_owner_is_waited_for(stand):
    """The owner arrives on the watch while its pod's request waits: the pod is placed, not passed over."""
    asking = asyncio.create_task(stand.admit(pod_review()))
    while not stand.reviewer._waiting:
        await asyncio.sleep(0.001)
    stand.deployment()
    assert "patch" in await asking


async def test_an_owner_that_never_comes_admits_unchanged(stand):
    """After 300 ms without the owner the pod is admitted as it came."""
    began = time.monotonic()
    response = await stand.admit(pod_review())
    assert response == {"uid": "request-1", "allowed": True}
    assert stand.notes.outcomes == ["unknown"]
    assert time.monotonic() - began >= PATIENCE_S


async def test_not_ready_admits_unchanged(stand):
    """Before the first lists are in, nothing is decided: the pod is admitted as it came."""
    stand.deployment()
    stand.ready = False
    assert await stand.admit(pod_review()) == {"uid": "request-1", "allowed": True}


async def test_a_defect_of_ours_admits_unchanged(stand, monkeypatch):
    """Fails open: an exception inside does not keep the pod from being created."""
    monkeypatch.setattr(stand.reviewer.admission, "decide", lambda *_, **__: 1 / 0)
    assert await stand.admit(pod_review()) == {"uid": "request-1", "allowed": True}
    assert stand.notes.outcomes == ["failed"]


async def test_a_conflict_is_told(stand):
    """M9: a pod tied to spot by its own rules is admitted with a mark, a warning, and an Event on its workload."""
    stand.deployment()
    response = await stand.admit(pod_review(nodeSelector={"node.kubernetes.io/capacity": "spot"}))
    assert response["allowed"] is True
    assert [op["path"] for op in patch_of(response)] == ["/metadata/annotations"]
    assert response["warnings"]
    assert stand.notes.events[0][0] == "conflict"


async def test_a_follower_passes_on_and_the_leader_counts(material, patient):
    """M4: with two replicas behind one address, whichever is asked, slots come out exact."""
    async with serving(Stand(material)) as leader, serving(Stand(material, leads=False)) as follower:
        leader.deployment(20)
        follower.deployment(20)
        courier = follower.reviewer.pass_on = LeaderForwarder(follower.front, lambda: f"127.0.0.1:{leader.server.port}")
        try:
            answers = await asyncio.gather(
                *[(leader, follower)[i % 2].admit(pod_review(f"request-{i}")) for i in range(20)]
            )
        finally:
            await courier.close()
        classes = [op["value"] for a in answers for op in patch_of(a) if op["path"] == "/metadata/labels"]
        assert sorted(c["vacant.io/affinity"] for c in classes) == ["on-demand"] + ["spot"] * 19
        assert follower.notes.outcomes == ["passed-on"] * 10


async def test_no_leader_in_reach_admits_unchanged(material, monkeypatch):
    """A follower whose leader is unknown, gone, or not leading any more admits the pod as it came."""
    monkeypatch.setattr(reviewer, "LEADER_S", 0.1)
    async with serving(Stand(material, leads=False)) as follower, serving(Stand(material, leads=False)) as former:
        follower.deployment()
        former.deployment()
        for address in ("", "127.0.0.1:1", f"127.0.0.1:{former.server.port}"):
            courier = follower.reviewer.pass_on = LeaderForwarder(follower.front, lambda address=address: address)
            try:
                assert await follower.admit(pod_review()) == {"uid": "request-1", "allowed": True}
            finally:
                await courier.close()


async def test_a_request_waits_for_the_next_leader(material, patient):
    """Issue 20: one replica stops and the next takes over: what is asked in between is answered by the new leader, whether
    it is the one that was asked or another."""
    async with serving(Stand(material, leads=False)) as one, serving(Stand(material, leads=False)) as other:
        one.deployment()
        other.deployment()
        nudges = []
        one.reviewer.on_leaderless = lambda: nudges.append(1)
        courier = one.reviewer.pass_on = LeaderForwarder(one.front, lambda: f"127.0.0.1:{other.server.port}")
        try:
            for leader in (other, one):
                asked = asyncio.ensure_future(one.admit(pod_review()))
                while not nudges:
                    await asyncio.sleep(0.01)
                leader.leads = True
                assert patch_of(await asked)
                leader.leads = False
                nudges.clear()
        finally:
            await courier.close()


async def test_a_slow_leader_is_asked_once(material, patient):
    """Issue 20: a leader on a busy machine that needs a second is waited for; asked again and again it would shake hands
    instead of answering, and the pod would come unpatched."""
    async with serving(Stand(material)) as leader, serving(Stand(material, leads=False)) as follower:
        leader.deployment()
        asked, looks = Slowed(leader), []
        courier = follower.reviewer.pass_on = LeaderForwarder(
            follower.front, lambda: f"127.0.0.1:{leader.server.port}", lambda: looks.append(1)
        )
        try:
            answer = asyncio.ensure_future(follower.admit(pod_review()))
            while len(looks) < 3:  # it has looked at the lease three times meanwhile
                await asyncio.sleep(0.01)
            asked.go.set()
            assert patch_of(await answer)
            assert asked.times == 1
        finally:
            await courier.close()


async def test_a_leader_that_hangs_is_left_for_the_one_that_follows_it(material, patient):
    """Issue 20: the leader holds the connection and says nothing; as soon as the lease names another, that one is asked."""
    async with (
        serving(Stand(material)) as hung,
        serving(Stand(material)) as leader,
        serving(Stand(material, leads=False)) as follower,
    ):
        hung.deployment()
        leader.deployment()
        asked, holder = Slowed(hung), [hung]
        courier = follower.reviewer.pass_on = LeaderForwarder(
            follower.front, lambda: f"127.0.0.1:{holder[0].server.port}", lambda: holder.insert(0, leader)
        )
        try:
            assert patch_of(await follower.admit(pod_review()))
            assert (asked.times, leader.notes.outcomes) == (1, ["on-demand"])
        finally:
            asked.go.set()
            await courier.close()


@asynccontextmanager
async def door(leader):
    """In front of a replica: connections are accepted, and carried on only after `opened`."""
    callers, opened = [], asyncio.Event()

    async def carry(reader, writer):
        callers.append(writer)
        await opened.wait()
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", leader.server.port)
        await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", callers, opened
    finally:
        opened.set()
        server.close()


async def test_a_connection_that_is_slow_to_come_outlives_the_request_that_wanted_it(material, monkeypatch):
    """Issue 20: on a busy machine a handshake takes longer than a request may wait; the next request finds it further
    on, and does not begin again."""
    monkeypatch.setattr(reviewer, "LEADER_S", 0.2)
    async with serving(Stand(material)) as leader, serving(Stand(material, leads=False)) as follower:
        leader.deployment()
        async with door(leader) as (address, callers, opened):
            courier = follower.reviewer.pass_on = LeaderForwarder(follower.front, lambda: address)
            try:
                for number in range(3):
                    assert "patch" not in await follower.admit(pod_review(f"early-{number}"))
                assert len(callers) == 1
                opened.set()
                monkeypatch.setattr(reviewer, "LEADER_S", 60.0)
                assert patch_of(await follower.admit(pod_review()))
                assert len(callers) == 1
            finally:
                await courier.close()


async def test_all_that_wait_for_a_connection_go_on_with_the_next_leader(material, patient):
    """Issue 20: several requests wait for one connection that does not come; another replica leads by then: each of them
    is answered by that one."""
    async with serving(Stand(material)) as leader, serving(Stand(material, leads=False)) as follower:
        leader.deployment()
        async with door(leader) as (address, _, _):
            holder = [address]
            courier = follower.reviewer.pass_on = LeaderForwarder(
                follower.front, lambda: holder[0], lambda: holder.insert(0, f"127.0.0.1:{leader.server.port}")
            )
            try:
                asked = [asyncio.ensure_future(follower.admit(pod_review(f"request-{n}"))) for n in range(3)]
                assert all(patch_of(answer) for answer in await asyncio.gather(*asked))
            finally:
                await courier.close()


async def pipe(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


class Slowed:
    """From now on this replica answers only after `go`."""

    def __init__(self, stand):
        self.go, self.times, self._answer = asyncio.Event(), 0, stand.reviewer.pods
        stand.reviewer.pods = self

    async def __call__(self, body, **how):
        self.times += 1
        await self.go.wait()
        return await self._answer(body, **how)


async def test_strangers_may_not_pass_on(stand, material):
    """Between replicas a certificate of our authority is wanted; one of another authority is not even shaken hands with."""
    stand.deployment()
    status, _ = await stand.post("/pass-on/pods", pod_review())
    assert status == 403
    other = ReloadingTls()
    other.swap(advance(None, ["127.0.0.1"], time.time()))
    foreign = other.client
    foreign.load_verify_locations(cadata=material.bundle.decode())
    with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
        await stand.post("/pass-on/pods", pod_review(), ssl=foreign)
    ours = stand.front.client
    status, _ = await stand.post("/pass-on/pods", pod_review(), ssl=ours)
    assert status == 200


async def test_the_first_certificate_may_come_late(material):
    """Before there is a certificate a handshake fails cleanly; from the moment it is there, requests are answered."""
    late = Stand(material)
    late.front._current = None
    async with serving(late):
        with pytest.raises(aiohttp.ClientError):
            await late.post("/admit/pods", pod_review())
        late.front.swap(material)
        assert (await late.admit(pod_review()))["allowed"] is True


async def test_a_server_that_stops_lets_go_of_its_callers_with_an_answer(material):
    """A rollout costs no admission: connections in use end with their next answer, and none is cut while it asks."""
    stand = Stand(material)
    stand.deployment()
    await stand.server.start()
    url, body = f"https://127.0.0.1:{stand.server.port}/admit/pods", json.dumps(pod_review()).encode()
    async with aiohttp.ClientSession() as session:
        async with session.post(url, data=body, ssl=stand.trust) as first:
            assert (first.status, first.headers.get("Connection")) == (200, None)
            await first.read()
        stopping = asyncio.ensure_future(stand.server.stop())
        await asyncio.sleep(0)
        async with session.post(url, data=body, ssl=stand.trust) as last:
            assert (last.status, last.headers.get("Connection")) == (200, "close")
        await stopping
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.post(url, data=body, ssl=stand.trust)
