"""Many replicas at once on a real API server, with the real controllers and scheduler (issue 20, scenes 4 to 7)."""

import asyncio
import json
import signal

import pytest
from bench.admission_restart import Service, given_up, measure

from tests.e2e.observer import Observer
from tests.e2e.test_mix_rebalance import CAPACITY, ENABLED, MODE, Environment
from tests.e2e.waiting import until

pytestmark = pytest.mark.e2e
FAST = {"vacant.io/rebalance": "fast"}


@pytest.fixture
def environment(lab, tmp_path):
    made = Environment(lab, tmp_path)
    more = {"labels": {"for": made.namespace, CAPACITY: "spot"}, "cpu": "64", "memory": "256Gi"}
    made.spot += lab.add_nodes(7, prefix=f"{made.namespace}-t", **more)
    try:
        yield made
    finally:
        made.close()


def deploy(environment, name, replicas, labels, annotations=None, start_s=0, **spec):
    made = json.loads(environment.manifest(name, replicas, labels, start_s=start_s))
    made["metadata"]["annotations"] = annotations or {}
    made["spec"] |= spec
    environment.lab.kubectl("apply", "-f", "-", input=json.dumps(made))


def test_the_quicker_way_and_everybody(environment):
    """M6: 50 replicas with maxSurge 100 % move as their own surge allows, not ten at a time, and 50 serve throughout.
    Then `interruption.everybody: evict` is written into the settings file while we run: pods of a workload that is not
    switched on leave an interrupted node."""
    environment.start()
    with Observer(environment.lab):
        _quicker(environment)
    _everybody(environment)


def _quicker(environment):
    strategy = {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}
    deploy(environment, "web", 50, {ENABLED: "true", MODE: "all-in-spot"}, FAST, start_s=12, strategy=strategy)
    # One that the API server created without asking us, after its 2 s on a busy machine, is moved to spot first.
    stand = lambda: len(environment.ready("web")) == 50 and environment.on_demand("web") == 0
    until(stand, "50 Ready, all on spot", tell=environment.scenario)
    environment.label("web", **{MODE: "all-in-on-demand"})
    most, fewest = 0, 50

    def moved():
        nonlocal most, fewest
        alive = environment.pods("web")
        ready = environment.ready("web")
        most = max(most, sum("ownerReferences" not in p["metadata"] for p in alive))
        fewest = min(fewest, len(ready))
        return len(alive) == 50 and {p["spec"].get("nodeName") for p in ready} <= set(environment.safe)

    until(moved, "all on on-demand", tell=environment.scenario)
    assert most > 10 and fewest >= 50


def _everybody(environment):
    deploy(environment, "plain", 2, {})
    until(lambda: len(environment.ready("plain")) == 2, "two that are not switched on", tell=environment.scenario)
    nodes = {p["spec"]["nodeName"] for p in environment.ready("plain")} & set(environment.spot)
    if not nodes:  # the scheduler has put both on on-demand: an interruption is one there, too
        nodes = {p["spec"]["nodeName"] for p in environment.ready("plain")}
    environment.settle(interruption={"everybody": "evict"})
    environment.notice(nodes, 300)

    def elsewhere():
        ready = environment.ready("plain")
        return len(ready) == 2 and not nodes & {p["spec"]["nodeName"] for p in ready}

    until(elsewhere, f"nobody is left on {nodes}", tell=environment.scenario)
    environment.lab.kubectl("annotate", "node", *nodes, "vacant.io/interrupt-at-")


def test_the_split_is_exact_soon_after_an_admission_gap(environment):
    """M4: we are killed, 60 pods are created meanwhile without our patch, all on spot; started again, exactly the
    difference goes, no more at once than maxUnavailable (25 %) allows, and it takes no minutes."""
    environment.start()
    environment.lab.kubectl("taint", "node", *environment.safe, "dear=yes:PreferNoSchedule")
    environment.mooring.end(signal.SIGKILL)
    deploy(environment, "web", 60, {ENABLED: "true", MODE: "majority-in-on-demand"}, start_s=2)
    until(lambda: len(environment.ready("web")) == 60, "60 Ready", tell=environment.scenario)
    wrong = 31 - environment.on_demand("web")
    assert wrong > 10, "the gap let them through"
    late = given_up(environment.lab)
    environment.start()
    fewest = 60

    def exact():
        nonlocal fewest
        ready = environment.ready("web")
        fewest = min(fewest, len(ready))
        return len(ready) == 60 and environment.on_demand("web") == 31

    until(exact, "31 of 60 on on-demand", tell=environment.scenario)
    assert fewest >= 45
    # No more than the difference, but for those that came without our patch: the API server gave up after its 2 s.
    assert 0 <= len(environment.seen["web"]) - 60 - wrong <= given_up(environment.lab) - late


def test_a_rolling_restart_of_two_replicas_lets_no_pod_through(lab):
    """M4: two replicas behind a Service are restarted one after the other while 10 pods a second are created: no call
    meets a closed door, each that was answered brought our patch, and what is unpatched the API server gave up after its
    2 s, by its own log, as it does on a busy machine. A handover that is broken makes that one in three, not in ten."""
    try:
        found = asyncio.run(measure(lab))
    except PermissionError:
        pytest.skip(f"port 443 of {Service().address} may not be listened on here (it needs root)")
    assert found.created > 100
    assert found.refused == 0, found
    assert found.unpatched <= found.late <= found.created // 10, found
