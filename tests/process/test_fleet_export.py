"""F13: what is stored is handed on by a command or a ConfigMap, each time it changes, with retries."""

import json
import sys
from base64 import b64decode

import msgspec
import pytest
import yaml

from mooring.capabilities.fleet.descriptor import DESCRIPTOR
from mooring.capabilities.fleet.live.export import NAME, SECRET, ExportPolicy, ExportRecord, after, due_at
from mooring.clients.ports import NotFoundError
from mooring.core.model.kinds import Kind
from mooring.process.fleet.export import Exporter, run_command
from mooring_lab.cluster.cluster import Cluster
from tests.capabilities.fleet.test_planning import Floor

POLICY = ExportPolicy(command=("set", "{file}"), retry_s=30)


def test_a_revision_is_due_until_it_has_worked():
    """F13: at once when it is new, else with back-off, doubled up to an hour; never again once it has worked."""
    assert due_at(ExportRecord(), 1, POLICY) == 0.0
    failed = after(ExportRecord(), 1, 100.0, worked=False, said="no")
    assert due_at(failed, 1, POLICY) == 130.0
    again = after(failed, 1, 130.0, worked=False, said="no")
    assert due_at(again, 1, POLICY) == 190.0 and due_at(again, 2, POLICY) == 0.0, "a new one does not wait for the old"
    for _ in range(40):
        again = after(again, 1, 0.0, worked=False, said="no")
    assert due_at(again, 1, POLICY) == 3600.0
    assert due_at(after(again, 1, 0.0, worked=True, said=""), 1, POLICY) is None


@pytest.mark.parametrize(
    "to", ["configmap/x", "secret/a/b", "secret/mooring-webhook-tls/tls.key", "configmap/UP/x", "configmap/a/b/c"]
)
def test_a_target_that_is_none_is_refused_when_it_is_read(to):
    """F13: settings are checked before they do anything."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"to": to}, ExportPolicy)


async def test_a_command_gets_the_file_and_a_time_limit():
    """F13: its exit and last words come back; what does not end is killed."""
    copy = "import sys; t = open(sys.argv[1]).read(); assert t == sys.stdin.read(); print('took', t); sys.exit(3)"
    assert await run_command([sys.executable, "-c", copy, "{file}"], b"x: 1", 20.0) == (3, "took x: 1\n")
    code, said = await run_command([sys.executable, "-c", "import time; time.sleep(600)"], b"", 0.2)
    assert code is None and "killed" in said


class Told:
    """Clock, recorder and gauges in one."""

    def __init__(self):
        self.at, self.events, self.gauges = 1000.0, [], {}

    def now(self):
        return self.at

    def event(self, *_, reason, message, warning=False, **__):
        self.events.append((str(reason), warning))

    def gauge(self, name, _, value):
        self.gauges[name] = value


class Desk:
    """A world with a stored cluster, an API server, and a command that answers as told."""

    def __init__(self):
        self.floor, self.told, self.leads, self.answer, self.ran = Floor(), Told(), True, (0, "ok"), []
        cluster = Cluster(seed=1)
        cluster.store.create(Kind.NAMESPACE, {"metadata": {"name": "own"}})
        self.store = cluster.store
        self.exporter = Exporter(
            cluster.api.as_client("mooring"),
            self.told,
            self.floor.world,
            self.told,
            namespace="own",
            policy=lambda: POLICY,
            leads=lambda: self.leads,
            gauge=self.told.gauge,
            run=self._run,
        )

    async def _run(self, argv, document, timeout_s):
        self.ran.append((list(argv), yaml.safe_load(document)))
        return self.answer

    def state(self):
        return json.loads(self.store.get(Kind.CONFIG_MAP, "own", NAME)["data"]["state.json"])


async def test_each_revision_is_handed_on_once_and_a_failure_is_tried_again():
    """F13: cluster.yml of what is stored; exit and last words kept, an Event and the metrics."""
    desk = Desk()
    desk.answer = (1, "no quorum\x1b[0m")
    await desk.exporter.step(POLICY)
    await desk.exporter.step(POLICY)
    assert len(desk.ran) == 1 and [n["address"] for n in desk.ran[0][1]["nodes"]], "the second try waits"
    assert desk.state()["said"] == "exit 1: no quorum?[0m" and desk.told.events == [("failed", True)]
    assert desk.told.gauges["mooring_fleet_export_successful"] == 0.0
    desk.told.at, desk.answer = 1030.0, (0, "")
    await desk.exporter.step(POLICY)
    await desk.exporter.step(POLICY)
    assert len(desk.ran) == 2 and desk.state()["worked"] == 1
    assert desk.told.gauges == {"mooring_fleet_export_successful": 1.0, "mooring_fleet_export_revision": 1.0}


async def test_it_is_written_to_a_config_map_for_gitops():
    """F13: the same file under a key; a replica that does not lead writes nothing."""
    desk, policy = Desk(), ExportPolicy(to="configmap/cke/cluster.yml")
    desk.leads = False
    await desk.exporter.step(policy)
    with pytest.raises(NotFoundError):
        desk.store.get(Kind.CONFIG_MAP, "own", "cke")
    desk.leads = True
    await desk.exporter.step(policy)
    document = yaml.safe_load(desk.store.get(Kind.CONFIG_MAP, "own", "cke")["data"]["cluster.yml"])
    assert len(document["nodes"]) == 4 and not desk.ran


async def test_it_is_written_to_the_one_secret_that_fleet_may_write():
    """F13: its options may hold what not everybody may read; the rights name that Secret and no other."""
    desk, policy = Desk(), ExportPolicy(to=f"secret/{SECRET}/cluster.yml")
    await desk.exporter.step(policy)
    first = desk.store.get(Kind.SECRET, "own", SECRET)["data"]["cluster.yml"]
    assert len(yaml.safe_load(b64decode(first))["nodes"]) == 4
    desk.store.patch(Kind.SECRET, "own", SECRET, {"data": {"other": "eA=="}})
    desk.store.patch(Kind.CONFIG_MAP, "own", NAME, {"data": {"state.json": "{}"}})
    await desk.exporter.step(policy)
    assert desk.store.get(Kind.SECRET, "own", SECRET)["data"] == {"cluster.yml": first, "other": "eA=="}
    writes = [r for r in DESCRIPTOR.rights if r.resource == "secrets" and set(r.verbs) - {"create"}]
    assert [(r.names, r.own) for r in writes] == [((SECRET,), True)]
