"""Home beside a real kube-scheduler: what may go wrong with a node, and a reservation that others want."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import mooring_lab.control
from mooring_lab.control.cluster import Lab
from tests.e2e.home_environment import SCHEDULER, Place, Process, Tidb, ready
from tests.e2e.looking import get
from tests.e2e.waiting import stands, until

CRD = Path(mooring_lab.control.__file__).parent / "crds" / "tidbcluster.yaml"


@pytest.fixture(scope="module")
def running(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Mooring with Home on, and a kube-scheduler of its own configured by `mooring home scheduler-config`."""
    at = tmp_path_factory.mktemp("home")
    lab.kubectl("apply", "-f", str(CRD))
    process = Process(lab, at / "mooring.log")
    # What the printed configuration needs: a lease under the scheduler's own name.
    own = ("-n", process.namespace)
    lab.kubectl("create", "role", SCHEDULER, *own, "--verb=get,create,update", "--resource=leases")
    lab.kubectl("create", "rolebinding", SCHEDULER, *own, f"--role={SCHEDULER}", "--user=system:kube-scheduler")
    lab.second_scheduler(config_file(process, at), SCHEDULER)
    process.start()
    try:
        yield process
    finally:
        process.stop()
        lab.stop(SCHEDULER)


def config_file(process: Process, at: Path, **changes: object) -> Path:
    argv = [sys.executable, "-c", "from mooring.cli import main; main()", "home", "scheduler-config"]
    argv += ["--kubeconfig", str(process.lab.kubeconfig), "--namespace", process.namespace]
    argv += ["--url", f"http://127.0.0.1:{process.extender}/scheduler"]
    document = yaml.safe_load(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    document["profiles"][0].update(changes)
    path = at / f"scheduler-{len(changes)}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def place(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Place]:
    made = Place(lab, f"h{abs(hash(request.node.name)) % 10**6}")
    yield made
    made.gone()


def test_rolling_update_comes_home(lab: Lab, running: Process, place: Place) -> None:
    """H1, H3, H5: new UIDs, same nodes, the same local endpoints, and nothing of others' status is lost; whatever
    instance a release tool names."""
    tidb = Tidb(lab, place.namespace, place.label, release="my-release")
    homes = tidb.settle()
    assert sorted(homes.values()) == sorted(place.small)
    place.add_roomy()
    until(lambda: tidb.endpoints() == set(place.small), "endpoints")
    uids = tidb.uids()
    lab.kubectl("rollout", "restart", "statefulset/demo-tidb", "-n", place.namespace)
    stands(lab, "rollout", "status", "statefulset/demo-tidb", "-n", place.namespace)
    until(tidb.settled)
    assert tidb.nodes() == homes
    assert not set(tidb.uids().values()) & set(uids.values())
    until(lambda: tidb.endpoints() == set(place.small), "the same endpoints as before")
    status = tidb.get("tc/demo")["status"]
    assert status["clusterID"] == "7"
    assert status["pd"] == {"members": {"demo-pd-0": {"health": True}}}
    assert 'mooring_extender_requests_total{reason="home",verb="filter"}' in running.metrics()
    shown = running.command("home", "status")
    assert all(name in shown and node in shown for name, node in homes.items())

    def rows() -> list:
        members = [m for m in running.home()["members"] if m["namespace"] == place.namespace]
        return [(m["home"], m["now"], m["state"]) for m in members]

    until(lambda: rows() == [(n, n, "home") for _, n in sorted(homes.items())], "all are home", tell=rows)


def test_without_the_feature_nothing_is_pinned(lab: Lab, running: Process, place: Place) -> None:
    """H4: switched off, the extender passes everything and the scheduler takes the roomier node."""
    tidb = Tidb(lab, place.namespace, place.label, replicas=1)
    home = tidb.settle()["demo-tidb-0"]
    roomy = place.add_roomy()
    running.stop()
    running.start("StableScheduling=false")
    assert tidb.recreate("demo-tidb-0") in roomy
    running.stop()
    running.start()
    assert home not in roomy


@pytest.mark.parametrize("how", ["cordoned", "tainted", "full", "deleted"])
def test_home_that_cannot_take_it(lab: Lab, running: Process, place: Place, how: str) -> None:
    """H2, H3: a home that is cordoned, tainted, full or gone is no home; the member runs elsewhere, and that is its new one."""
    tidb = Tidb(lab, place.namespace, place.label, replicas=1)
    home = tidb.settle()["demo-tidb-0"]
    match how:
        case "cordoned":
            lab.kubectl("cordon", home)
        case "tainted":
            lab.kubectl("taint", "node", home, "test=yes:NoSchedule")
        case "full":
            place.filler("filler", nodeName=home)
        case "deleted":
            lab.kubectl("delete", "node", home)
    if how == "deleted":
        before = tidb.uids()
        lab.kubectl("delete", "pod", "demo-tidb-0", "-n", place.namespace, "--force", "--grace-period=0")
        until(lambda: tidb.uids() != before and tidb.settled())
        now = tidb.nodes()["demo-tidb-0"]
    else:
        now = tidb.recreate("demo-tidb-0")
    assert now != home
    assert tidb.settle() == {"demo-tidb-0": now}
    match how:
        case "cordoned":
            lab.kubectl("uncordon", home)
        case "tainted":
            lab.kubectl("taint", "node", home, "test=yes:NoSchedule-")
        case "full":
            lab.kubectl("delete", "pod", "filler", "-n", place.namespace, "--force", "--grace-period=0")
    place.add_roomy()
    assert tidb.recreate("demo-tidb-0") == now, f"where it went is its home now\n{tidb.story(running)}"


def test_extender_down_and_restarted_midway(lab: Lab, running: Process, place: Place) -> None:
    """H2, H3: without Mooring pods are scheduled all the same; killed and started again midway it knows every home."""
    tidb = Tidb(lab, place.namespace, place.label)
    homes = tidb.settle()
    place.add_roomy()
    patch = '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}'
    lab.kubectl("patch", "statefulset/demo-tidb", "-n", place.namespace, "-p", patch)
    before = tidb.uids()
    lab.kubectl("rollout", "restart", "statefulset/demo-tidb", "-n", place.namespace)
    until(lambda: tidb.uids().get("demo-tidb-2", before["demo-tidb-2"]) != before["demo-tidb-2"] and tidb.settled())
    running.kill()
    place.filler("meanwhile", schedulerName=SCHEDULER, cpu="100m")
    until(lambda: ready(tidb.get("pod/meanwhile")), "a pod is scheduled while the extender is down")
    running.start()
    lab.kubectl("patch", "statefulset/demo-tidb", "-n", place.namespace, "-p", patch.replace("2", "0"))
    until(lambda: not set(tidb.uids().values()) & set(before.values()) and tidb.settled())
    assert tidb.nodes() == homes


def test_recreated_before_its_node_was_written_down(lab: Lab, running: Process, place: Place) -> None:
    """H3: another process holds the lease and writes nothing (a fail-over that takes long): a follower saw where the
    members were, and answers by that."""
    running.stop()
    theirs = {"holderIdentity": "another", "leaseDurationSeconds": 3600}
    lab.kubectl("patch", "lease/mooring", "-n", running.namespace, "--type=merge", "-p", json.dumps({"spec": theirs}))
    running.start(leads=False)
    try:
        tidb = Tidb(lab, place.namespace, place.label)
        until(tidb.settled)
        homes = tidb.nodes()
        place.add_roomy()
        for name in homes:
            assert tidb.recreate(name) == homes[name], tidb.story(running)
        assert tidb.recorded() == {} and not running.decides()
    finally:
        lab.kubectl("delete", "lease/mooring", "-n", running.namespace)
        running.stop()
        running.start()


def test_sampling_loses_homes_and_all_nodes_does_not(lab: Lab, running: Process, tmp_path: Path) -> None:
    """H8: above 100 nodes kube-scheduler looks at some of them; `percentageOfNodesToScore: 100` is why homes are found."""
    label = "many"
    lab.add_nodes(140, prefix="many-", labels={"test": label}, cpu="7")
    namespace = lab.namespace("home")
    try:
        tidb = Tidb(lab, namespace, label, replicas=1)
        home = tidb.settle()["demo-tidb-0"]
        for _ in range(5):
            assert tidb.recreate("demo-tidb-0") == home
        lab.stop(SCHEDULER)
        lab.second_scheduler(config_file(running, tmp_path, percentageOfNodesToScore=0), SCHEDULER)
        seen = [tidb.recreate("demo-tidb-0") for _ in range(10)]
        assert len({home, *seen}) > 1, "a sample of the nodes always had the home in it"
    finally:
        lab.stop(SCHEDULER)
        lab.second_scheduler(config_file(running, tmp_path), SCHEDULER)
        lab.clear(namespace, nodes=f"test={label}")


def test_preemption_works_and_prefers_home(lab: Lab, running: Process, place: Place) -> None:
    """H7: a member that fits nowhere preempts a pod of lower priority, at home."""
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": place.label},
        "value": 1000,
    }
    lab.kubectl("apply", "-f", "-", input=yaml.safe_dump(high))
    tidb = Tidb(lab, place.namespace, place.label, replicas=1, priorityClassName=place.label)
    home = tidb.settle()["demo-tidb-0"]
    for node in place.small:
        place.filler(f"low-{node}", nodeName=node)
    assert tidb.recreate("demo-tidb-0") == home
    left = {p["metadata"]["name"] for p in tidb.get("pods")["items"]}
    assert left == {"demo-tidb-0", *(f"low-{n}" for n in place.small if n != home)}
    lab.kubectl("delete", "priorityclass", place.label)


@pytest.mark.parametrize("held", [True, False], ids=["held", "not held"])
def test_seat_against_another_scheduler(lab: Lab, running: Process, place: Place, held: bool) -> None:
    """H8: another scheduler's pod waits for room and takes a member's reservation, unless it is held; then the member is back."""
    labels = {"mooring.dev/reserve-node": "true"} if held else {}
    # Slowly enough for a busy machine: the reservation is made meanwhile.
    leaves_slowly = {"lab.mooring.dev/grace-seconds": "6"}
    tidb = Tidb(lab, place.namespace, place.label, labels=labels, annotations=leaves_slowly)
    homes = tidb.settle()
    place.filler("greedy", schedulerName="default-scheduler")
    until(lambda: unschedulable(tidb.get("pod/greedy")), "the other scheduler finds no room")
    before = tidb.uids()
    lab.kubectl("delete", "pod", "demo-tidb-1", "-n", place.namespace, "--wait=false")
    if held:
        until(lambda: tidb.uids().get("demo-tidb-1", before["demo-tidb-1"]) != before["demo-tidb-1"] and tidb.settled())
        assert tidb.nodes() == homes
        until(lambda: not reservations(lab), "the reservation is given back")
        assert unschedulable(tidb.get("pod/greedy")), f"{homes}, {tidb.nodes()}, {tidb.get('pod/greedy')['spec']}"
    else:

        def taken() -> bool:
            if tidb.settled():  # the member won the race of the two schedulers: once more
                lab.kubectl("delete", "pod", "demo-tidb-1", "-n", place.namespace, "--wait=false")
            return bool(tidb.get("pod/greedy")["spec"].get("nodeName") == homes["demo-tidb-1"])

        until(taken, "greedy takes it")


def unschedulable(pod: dict) -> bool:
    found = pod["status"].get("conditions", ())  # none before a scheduler has looked at it
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in found)


def reservations(lab: Lab) -> list[str]:
    nodes = get(lab, "nodes")["items"]
    return [
        n["metadata"]["name"]
        for n in nodes
        if "mooring.dev/reserved" in n["metadata"].get("annotations", {})
        or any(t["key"] == "mooring.dev/reserved" for t in n["spec"].get("taints", ()))
    ]


def test_any_stateful_set_may_opt_in(lab: Lab, running: Process, place: Place) -> None:
    """H6: a labelled StatefulSet's pods go home too, remembered in an annotation; scaled in, they are forgotten."""
    meta = {"labels": {"app": "web"}}
    spec = {
        "schedulerName": SCHEDULER,
        "nodeSelector": {"test": place.label},
        "containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "3"}}}],
    }
    sts = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web", "labels": {"mooring.dev/home": "true"}},
        "spec": {
            "replicas": 2,
            "serviceName": "web",
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": meta, "spec": spec},
        },
    }
    kubectl, at = lab.kubectl, ("-n", place.namespace)
    kubectl("apply", *at, "-f", "-", input=yaml.safe_dump(sts))

    def remembered() -> dict:
        obj = get(lab, "statefulset/web", *at)
        return json.loads(obj["metadata"].get("annotations", {}).get("mooring.dev/home", "{}"))

    def nodes() -> dict:
        pods = get(lab, "pods", *at)["items"]
        return {p["metadata"]["name"]: {"node": p["spec"].get("nodeName", "")} for p in pods if ready(p)}

    until(lambda: len(remembered()) == 2 and remembered() == nodes(), "both are remembered")
    homes = nodes()
    place.add_roomy()
    kubectl("rollout", "restart", "statefulset/web", *at)
    stands(lab, "rollout", "status", "statefulset/web", *at)
    until(lambda: nodes() == homes, "both are home")
    kubectl("scale", "statefulset/web", *at, "--replicas=1")
    until(lambda: remembered() == {"web-0": homes["web-0"]}, "web-1 is forgotten")
