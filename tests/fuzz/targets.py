"""What is fuzzed: a name, seeds, and a function that may raise the named errors and nothing else."""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from aiohttp import web

from mooring.capabilities.balance.foreign import steps_of
from mooring.capabilities.drain.gate import at_once
from mooring.capabilities.drain.policy import DrainPolicy
from mooring.capabilities.drain.request import is_detached, request_of, withdraw
from mooring.capabilities.fleet.live.node_metadata import APPLIED, applied_to, bring_up_to_date
from mooring.capabilities.handoff.operators import marks_of, names_of_no_member, read_back
from mooring.capabilities.home.capability import Home
from mooring.capabilities.home.memory import read_places
from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.verbs import Verbs
from mooring.capabilities.home.wire import BadRequestError
from mooring.capabilities.mix.admission.reviews import BadReviewError, eviction_request
from mooring.capabilities.registry import descriptors
from mooring.clients.pd import answers, regions
from mooring.clients.ports import UnansweredError
from mooring.clients.registry.rows import InvalidMachinesError
from mooring.clients.registry.sabakan.parse import parse_machines
from mooring.clients.wire.kube import KINDS, decode
from mooring.clients.wire.placement import placement
from mooring.core.engine.engine import Engine
from mooring.core.engine.recording import reading
from mooring.core.engine.recording.brief import Batch
from mooring.core.engine.recording.records import PART, Writer
from mooring.core.engine.why import explain
from mooring.core.engine.why.names import unknown
from mooring.core.model.cluster import Key, Node, Owner, Pod, PodShape
from mooring.core.model.events import Gone, Listed, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.limits import is_dense
from mooring.core.model.marks import HANDOFF, HOME, LEAVING, RESERVED_TAINT, Mark, read_mark, write_mark, write_marks
from mooring.core.model.tidb import TidbCluster
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World
from mooring.process import replica
from mooring.process.blackbox.file import BadRecordingError, RecordingFile
from mooring.process.extender import app_of
from mooring.process.http.intake import LISTEN
from mooring.process.http.status import status_app
from mooring.process.settings.config import Config
from mooring_lab.rehearse.snapshot import schema
from mooring_lab.rehearse.snapshot.load import demo_snapshot

HERE = Path(__file__).parents[1]
NAME = "demo-tidb-0"


PEERS = [{"id": 1, "store_id": 1, "role_name": "Voter"}, {"id": 2, "store_id": 2}]
REGION = {
    "id": 7,
    "start_key": "",
    "end_key": "7A",
    "epoch": {"conf_ver": 1, "version": 1},
    "peers": PEERS,
    "leader": PEERS[0],
}
MADE = {
    "regions": (json.dumps({"count": 1, "regions": [REGION]}).encode(),),
    "regions/key": (json.dumps({"count": 1, "regions": [REGION]}).encode(),),
    "region": (json.dumps(REGION).encode(),),
    "pauses": (
        json.dumps(
            [{"name": "balance-leader-scheduler", "paused_at": "2026-11-16 15:00:00", "resume_at": "x"}]
        ).encode(),
    ),
}


class Target(msgspec.Struct, frozen=True):
    name: str
    seeds: tuple[bytes, ...]
    run: Callable[[Any], object]
    may_raise: tuple[type[BaseException], ...] = ()
    #: From the input to what `run` is given: in no measurement.
    prepare: Callable[[bytes], Any] = bytes


def world() -> World:
    made = World()
    for index in Home().indexes():
        made.register(index)
    tc = TidbCluster("tidb", "demo", "u", "1", tidb_member_nodes={NAME: "n1"})
    made.apply(Seen(Kind.TIDB_CLUSTER, tc))
    made.apply(Seen(Kind.NODE, Node("n1", "n1-uid", "1", ready="True")))
    made.apply(Seen(Kind.POD, Pod("tidb", NAME, "p", "1", PodShape(), node="n1")))
    return made


def targets() -> Iterator[Target]:
    yield from _extender()
    yield from _reviews()
    yield from _pd()
    yield from _objects()
    yield from _http()
    yield _marks()
    yield _come_and_go()
    yield _why()
    recorded = json.loads((HERE / "clients/registry/sabakan/recorded.json").read_text())
    seeds = tuple(json.dumps(one).encode() for one in recorded.values())[:4]
    yield Target("sabakan", seeds, _recorded(lambda body: parse_machines(body, 0.0)), (InvalidMachinesError,))
    snapshot = msgspec.json.encode(_small(demo_snapshot()))
    yield Target("snapshot", (snapshot,), lambda body: schema.parse(body, "x"), (schema.BadSnapshotError,))
    yield from _recordings()


def _extender() -> Iterator[Target]:
    labels = {"app.kubernetes.io/component": "tidb", "app.kubernetes.io/instance": "demo"}
    pod = {"metadata": {"name": NAME, "namespace": "tidb", "labels": labels, "ownerReferences": []}}
    full = {"items": [{"metadata": {"name": f"n{i}"}, "spec": {}} for i in range(3)]}
    asked = [{"Pod": pod, "Nodes": None, "NodeNames": ["n0", "n1"]}, {"pod": pod, "nodes": full, "nodenames": None}]
    victims = {"n1": {"Pods": [{"UID": "a"}, {"metadata": {"uid": "b"}}], "NumPDBViolations": 0}, "n2": None}
    preempted = [{"Pod": pod, "NodeNameToMetaVictims": victims}, {"pod": pod, "nodeNameToVictims": victims}]
    verbs = Verbs(world(), HomePolicy, lambda: True)
    seeds = tuple(json.dumps(one).encode() for one in asked)
    yield Target("extender filter", seeds, verbs.filter, (BadRequestError,))
    yield Target("extender prioritize", seeds, verbs.prioritize, (BadRequestError,))
    more = tuple(json.dumps(one).encode() for one in preempted)
    yield Target("extender preempt", more, verbs.preempt, (BadRequestError,))


def _http() -> Iterator[Target]:
    """Whole requests to the page and the extender, over loopback: whatever comes, no 500."""
    loop = asyncio.new_event_loop()
    verbs = Verbs(world(), HomePolicy, lambda: True)
    apps = {
        "page": status_app(lambda: None),
        "page off loopback": status_app(lambda: None, token="hush", on_loopback=False),
        "extender": app_of(verbs, HomePolicy, lambda *_: None, token="hush"),
    }
    head = b"Host: localhost\r\nAuthorization: Bearer hush\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}"
    paths = (
        b"GET /api/v1/why/pod/tidb/x?namespace=y",
        b"GET /metrics",
        b"POST /scheduler/filter",
        b"GET /api/v1/queue",
    )
    seeds = tuple(path + b" HTTP/1.1\r\n" + head for path in paths)
    for name, app in apps.items():
        yield Target(f"http {name}", seeds, _asked(loop, loop.run_until_complete(_served(app))))


async def _served(app: web.Application) -> int:
    runner = web.AppRunner(app, **LISTEN)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return int(runner.addresses[0][1])


def _asked(loop: asyncio.AbstractEventLoop, port: int) -> Callable[[bytes], object]:
    async def ask(body: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with asyncio.timeout(0.5):
                writer.write(body)
                writer.write_eof()
                said = await reader.read(4096)
        except (TimeoutError, OSError):
            return
        finally:
            writer.close()
        assert not said.startswith((b"HTTP/1.1 500", b"HTTP/1.0 500")), said[:300]

    return lambda body: loop.run_until_complete(ask(body))


def _reviews() -> Iterator[Target]:
    from tests.process.http.test_webhook import Stand

    lines = (HERE / "capabilities/mix/admission/data/admission_reviews.jsonl").read_text().splitlines()
    by_path: dict[str, list[bytes]] = {}
    for line in lines:
        one = json.loads(line)
        by_path.setdefault(one["path"], []).append(json.dumps(one["body"]).encode())
    stand = Stand.__new__(Stand)
    reviewer, loop = _reviewer(stand), asyncio.new_event_loop()
    for path, seeds in sorted(by_path.items()):
        ask = reviewer.pods if path.endswith("pods") else reviewer.workloads
        run = _answered(loop, ask)
        yield Target(f"webhook {path}", tuple(seeds), run, (BadReviewError, RecursionError))
    yield _evictions()


def _evictions() -> Target:
    """What the gate reads of an eviction, and what every replica answers."""
    seen, policy = world(), DrainPolicy()
    said = {"kind": "Eviction", "metadata": {"namespace": "tidb", "name": NAME}, "deleteOptions": None}
    request = {"uid": "r", "namespace": "tidb", "name": NAME, "operation": "CREATE", "subResource": "eviction"}
    request |= {"object": said, "userInfo": {"username": "kubernetes-admin"}, "dryRun": False}
    bound = {**said, "deleteOptions": {"preconditions": {"uid": "p"}}}
    both = ({**request, "object": one} for one in (said, bound))
    reviews = ({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": one} for one in both)

    def run(body: bytes) -> object:
        found = eviction_request(body)
        return at_once(seen.pod(Key(found.namespace, found.name)), found.pod_uid, seen, policy)

    seeds = tuple(json.dumps(one).encode() for one in reviews)
    return Target("webhook evictions", seeds, run, (BadReviewError, RecursionError))


def _answered(loop: asyncio.AbstractEventLoop, ask: Callable[[bytes], Any]) -> Callable[[bytes], object]:
    return lambda body: loop.run_until_complete(ask(body))


def _reviewer(stand: Any) -> Any:
    import time

    from mooring.process.admission.certificates import advance

    stand.__init__(advance(None, ["127.0.0.1"], time.time()))
    stand.deployment()
    return stand.reviewer


def _pd() -> Iterator[Target]:
    said: dict[str, list[bytes]] = {}
    for line in (HERE / "clients/pd/recordings/pd-8.5.7.jsonl").read_text().splitlines():
        one = json.loads(line)
        if one["status"] == 200:
            said.setdefault(one["path"].removeprefix("/pd/api/v1/").partition("?")[0], []).append(one["said"].encode())
    readers: dict[str, Callable[[bytes], object]] = {
        "stores": answers.stores,
        "regions": regions.regions,
        "regions/key": regions.regions_of_range,
        "region": regions.region,
        "pauses": lambda body: answers.pauses(body, "Mon, 16 Nov 2026 15:00:00 GMT"),
        "members": answers.members,
        "health": answers.health,
        "status": answers.status,
        "operators": answers.operators,
        "schedulers": lambda body: answers.evicting_by_name(answers.names(body, "x")),
        "scheduler-config/evict-leader-scheduler/list": answers.evicting_by_list,
    }
    for path, read in readers.items():
        seeds = tuple(sorted(set(said.get(path, ())), key=len)[-2:]) or MADE.get(path, (b"[]",))
        yield Target(f"pd {path}", seeds, _recorded(read), (UnansweredError,))
    schedule = b'{"low-space-ratio":0.8,"halt-scheduling":"false","max-replicas":3,"location-labels":"zone,host"}'
    rules = b'[{"group_id":"pd","id":"default","index":1,"role":"voter","count":3,"location_labels":["zone"]}]'
    labels = b'[{"labels":[{"key":"schedule","value":"deny"}],"rule_type":"key-range","data":[{"start_key":"","end_key":"7A"}]}]'

    def placed(body: bytes) -> object:
        """Whatever of the five it is: read as each of them."""
        return [
            placement(
                *(body if place == at else said for at, said in enumerate((schedule, schedule, rules, None, labels)))
            )
            for place in range(5)
        ]

    yield Target("pd placement", (schedule, rules, labels), _recorded(placed), (ValueError,))
    line = (
        "transfer-peer {mv peer: store [1] to [4]} (kind:region, region:7(1, 1), createAt:x, steps:[0:{add}, 1:{rm}])"
    )
    yield Target("pd operator line", (line.encode(),), _recorded(_operator))
    yield Target("pd words", (b'"\\"x\\""', b'{"msg":"x"}'), answers.text)


def _operator(body: bytes) -> object:
    found = answers.operator(body.decode("utf-8", "replace"))
    return found and (found, steps_of(found))


def _recorded(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """What a tenant's server says enters the black box: whatever is read must go in there. A dense answer never comes
    as far (`clients.pd.transport`)."""
    return lambda body: msgspec.msgpack.encode(None if is_dense(body) else read(body), enc_hook=dict)


def _objects() -> Iterator[Target]:
    snapshot = demo_snapshot()
    for kind in sorted(KINDS):
        found = snapshot.objects.get(kind.value, [])[:3]
        seeds = tuple(msgspec.json.encode(obj) for obj in found) or (
            b'{"metadata":{"name":"x"},"spec":{},"status":{}}',
        )

        def read(body: bytes, kind: Kind = kind) -> object:
            return decode(kind, body)

        yield Target(f"object {kind}", seeds, read, (msgspec.MsgspecError, RecursionError, UnicodeDecodeError))


#: As a tenant creates them, one after another: `@` is another number in each.
OWNED = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-@", "uid": "r@", "controller": True}
COMES = {
    Kind.POD: {
        "spec": {
            "nodeName": "n@",
            "schedulerName": "s@",
            "nodeSelector": {"k@": "v@"},
            "tolerations": [{"key": "k@", "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "@m", "memory": "@Ki"}}}],
        },
        "status": {"phase": "Running", "startTime": "2026-11-16T15:00:00.@Z"},
    },
    Kind.DEPLOYMENT: {"spec": {"replicas": 3, "selector": {"matchLabels": {"app": "@"}}}, "status": {"replicas": 3}},
    Kind.STATEFUL_SET: {"spec": {"replicas": 3, "selector": {"matchLabels": {"app": "@"}}}},
    Kind.TIDB_CLUSTER: {"spec": {"tikv": {"replicas": 3}}, "status": {"tikv": {"stores": {"@": {"id": "@"}}}}},
    Kind.PDB: {"spec": {"minAvailable": "3%", "selector": {"matchLabels": {"app": "@"}}}},
    Kind.CONFIG_MAP: {"data": {"x@": "y@"}},
}
BURST = 50


class Crowd:
    """Many small objects that come and go: of one input, a burst of them, each with texts that no other has. Every
    capability's indexes look on, and nobody may hold on to what is gone."""

    def __init__(self) -> None:
        self.world = World()
        for one in descriptors():
            for index in one.make(Config()).indexes():
                self.world.register(index)
        self._number = 0
        for kind in replica.KINDS:
            self.world.apply(Listed(kind, ()))

    def pass_by(self, body: bytes) -> None:
        gone, small = [], len(body) < 2_000
        for _ in range(BURST if small else 1):
            self._number += 1
            said = body.replace(b"@", b"%d" % self._number)
            for kind in COMES if small else (Kind.POD,):
                # Who they are is the API server's to say.
                row = msgspec.structs.replace(decode(kind, said), uid=f"u{self._number}", name=f"web-{self._number}")
                self.world.apply(Seen(kind, row))
                gone.append(Gone(kind, row.key, row.uid))
        for one in gone:
            self.world.apply(one)


@cache
def crowd() -> Crowd:
    return Crowd()


def _come_and_go() -> Target:
    metadata = {"name": "web-@", "namespace": "shop@", "uid": "u@", "labels": {"app": "@", "vacant.io/x": "@"}}
    metadata |= {"annotations": {"mooring.dev/x": "@", "vacant.io/slot": "@"}, "ownerReferences": [OWNED]}
    seeds = tuple(json.dumps({"metadata": metadata, **one}).encode() for one in COMES.values())
    return Target(
        "objects that come and go", seeds, crowd().pass_by, (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
    )


def _marks() -> Target:
    before = {"workload": "Deployment/shop/web", "workloadUID": "w", "pod-template-hash": "abc", "replicaSet": "r"}
    mark = Mark(operator="7", source="spot", reason="x", step="y", since=0.0, pod_uid="p", store_id=3, before=before)
    record = b'{"labels":["a"],"annotations":{"b":"c"},"taints":["d:NoSchedule"]}'
    seeds = (
        write_mark(mark).encode(),
        (write_marks({"demo-tikv-0": mark}) or "").encode(),
        record,
        b'{"web-0":{"node":"n1"}}',
    )
    shape = PodShape(labels={"pod-template-hash": "abc-leaving"})

    def run(body: bytes) -> None:
        text = body.decode("utf-8", "replace")
        read_mark(text)
        pod = Pod("shop", "web-1", "p", "1", shape, annotations={LEAVING: text})
        found = request_of(pod)
        if found is not None and is_detached(pod):
            withdraw(pod, "taken back")
        tc = TidbCluster("tidb", "demo", "u", "1", annotations={HANDOFF: text, HOME: text})
        marks = marks_of(tc) or {}
        names_of_no_member(tc, marks)
        for name, one in marks.items():
            list(read_back(tc.key, name, one, "n1"))
        read_places(tc.annotations)
        node = Node("n1", "u", "1", annotations={APPLIED: text, RESERVED_TAINT: text})
        applied_to(node)
        bring_up_to_date(node, {"labels": {}, "annotations": {}, "taints": []}, tuple)

    return Target("marks", seeds, run)


def _why() -> Target:
    engine = Engine(world(), Queue(live_settings()), ())
    seeds = (
        b"pod/tidb/demo-tidb-0",
        b"node/n1",
        b"store/tidb/demo/1",
        b"cluster/tidb/demo",
        b"machine/x",
        b"operator/1",
    )

    def run(body: bytes) -> None:
        name = body.decode("utf-8", "replace")[:300]
        if explain(engine, name) is None:
            unknown(engine, name)

    return Target("why", seeds, run)


def _recordings() -> Iterator[Target]:
    """A black box: the bytes of the file, and records whose frames are whole."""
    whole = HERE / "blackbox/incidents/lab-notice.blackbox"  # of format 2: a record per turn
    held = tempfile.NamedTemporaryFile(prefix="mooring-fuzz-")  # noqa: SIM115 - as long as the process

    def file(body: bytes) -> None:
        path = Path(held.name)
        path.write_bytes(body)
        list(reading.read(RecordingFile(path).parts[0].records()))

    def packed(body: bytes) -> list[bytes]:
        try:
            made = json.loads(body, object_hook=_bytes_again)
            return [msgspec.msgpack.encode(one) for one in (made if isinstance(made, list) else [made])]
        except (ValueError, OverflowError, RecursionError):
            return []  # no JSON, or no number of msgpack's

    def records(packed: list[bytes]) -> None:
        list(reading.read(packed))

    bad = (BadRecordingError, reading.BadRecordError)
    yield Target("recording file", (whole.read_bytes(),), file, bad)
    said = [msgspec.msgpack.decode(one) for one in RecordingFile(whole).parts[0].records()]
    shared = [one for one in said if one[0] == "shared"]
    turns = [one for one in said if one[0] == "turn"]
    seeds = tuple(msgspec.json.encode([*shared, *turns[at : at + 4]]) for at in range(0, len(turns), 4))
    yield Target("recording records", (*seeds, *[_in_columns()] * len(seeds)), records, bad, packed)


def _in_columns() -> bytes:
    """Since format 4: pods that are told whole, then in brief, as shapes and owners by number, and a list ahead of its turn."""
    made, writer, shape, batch = World(), Writer(), PodShape(labels={"app": "x"}), Batch()
    made.apply(Listed(Kind.POD, ()))
    owner = Owner("ReplicaSet", "x", "r1")
    pods = [Pod("a", f"p{i}", str(UUID(int=i + 1)), "1", shape, owner if i else None) for i in range(4)]
    moved = [msgspec.structs.replace(pod, resource_version="2", ready=True) for pod in pods]
    same = [msgspec.structs.replace(pod, resource_version="3") for pod in moved]
    for now, these in enumerate((pods, moved, same)):
        events = [Seen(Kind.POD, pod) for pod in these]
        batch.add(float(now), 1, events, [], [made.apply(event) for event in events])
    batch.add(4.0, 1, [Listed(Kind.NODE, tuple(Node(f"n{i}", f"u{i}", "1") for i in range(PART + 1)))], [])
    said = map(msgspec.msgpack.decode, writer.turns(batch))
    return msgspec.json.encode(list(said), enc_hook=lambda ext: {"ext": ext.code, "hex": bytes(ext.data).hex()})


def _bytes_again(value: dict[str, Any]) -> Any:
    """What msgpack has and JSON has not."""
    try:
        return (
            msgspec.msgpack.Ext(value["ext"], bytes.fromhex(value["hex"])) if value.keys() == {"ext", "hex"} else value
        )
    except (TypeError, ValueError, OverflowError):
        return value


def _small(snapshot: schema.Snapshot) -> schema.Snapshot:
    return msgspec.structs.replace(snapshot, objects={k: v[:2] for k, v in snapshot.objects.items()}, pds=[])
