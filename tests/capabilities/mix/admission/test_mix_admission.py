"""Deciding single pods and bursts, without an API server: requests in, patches out."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.capabilities.mix import memory
from mooring.capabilities.mix.admission.decide import Decision, Wait
from mooring.capabilities.mix.labels import ENABLED, MODE
from mooring.capabilities.mix.policy import MixPolicy
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import ConfigMap, Owner, Pod, PodShape, ReplicaSet, Workload
from mooring.core.model.events import Gone, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason

CAPACITY = "node.kubernetes.io/capacity"


def test_a_burst_is_exact_before_the_watch_shows_anything(town, classes):
    """M4: 500 requests before the first pod is seen: every slot once, and exactly the split."""
    owner = town.deployment("web", 500, "majority-in-on-demand")
    pods = [town.admit(owner) for _ in range(500)]
    assert sorted(int(p["metadata"]["annotations"]["vacant.io/slot"]) for p in pods) == list(range(500))
    assert classes(pods).count("O") == 251
    assert classes(pods[:5]) == "OOsOs"


def test_what_a_pod_is_given(town):
    """M3: affinity, marker, slot, token, deletion cost, and for spot a toleration; everything else stays."""
    owner = town.deployment("web", 2, "custom", "1")
    on_demand, spot = town.admit(owner), town.admit(owner)
    required = on_demand["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": CAPACITY, "operator": "In", "values": ["on-demand"]}]}
    ]
    assert "tolerations" not in on_demand["spec"]
    (preferred,) = spot["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["weight"] == 100
    assert preferred["preference"]["matchExpressions"] == [{"key": CAPACITY, "operator": "In", "values": ["spot"]}]
    assert spot["spec"]["tolerations"][0]["key"] == CAPACITY
    assert spot["metadata"]["labels"] == {"app": "web", "vacant.io/affinity": "spot"}
    annotations = spot["metadata"]["annotations"]
    assert annotations["vacant.io/slot"] == "1"
    assert annotations["controller.kubernetes.io/pod-deletion-cost"] == "9999"
    assert annotations["vacant.io/reservation"] != on_demand["metadata"]["annotations"]["vacant.io/reservation"]


def test_a_users_deletion_cost_stays(town):
    """M9: a deletion cost of the user's own is not overwritten."""
    owner = town.deployment("web", 2)
    pod = town.admit(owner, annotations={"controller.kubernetes.io/pod-deletion-cost": "7"})
    assert pod["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"] == "7"


@pytest.mark.parametrize("labels", [{ENABLED: "false"}, {ENABLED: "yes"}, {MODE: "nonsense"}])
def test_not_switched_on_is_not_touched(town, labels):
    """M1: absent, false or not understood: the pod is admitted as it came."""
    owner = town.deployment("web", 3, labels=labels)
    decision = town.decide(town.review(owner))
    assert decision.operations == []
    assert decision.reason in {Reason.NOT_MANAGED, Reason.MISCONFIGURED}


def test_whose_pods_are_touched(town):
    """Only pods of a StatefulSet, or of a ReplicaSet of a Deployment, by uid; no bare, bound or foreign ones."""
    owner = town.deployment("web", 3)
    lone = Owner("ReplicaSet", "lone", "lone")
    town.tell(Seen(Kind.REPLICA_SET, ReplicaSet("default", "lone", "lone", "1", None, replicas=1)))
    namesake = Owner("ReplicaSet", owner.name, "another-uid")
    other_group = Owner("ReplicaSet", owner.name, owner.uid, "example.com/v1")
    bound = town.review(owner, spec={"nodeName": "n1", "containers": []})
    others = [town.review(o) for o in (None, lone, namesake, other_group, Owner("Job", "j", "j", "batch/v1"))]
    for review in [*others, bound]:
        assert town.decide(review).operations == []
    assert town.decide(town.review(owner)).operations != []


def test_a_namesake_of_a_deployment_is_not_waited_for(town):
    """M1: a ReplicaSet of some other group's "Deployment" is not ours, and its pods are not kept waiting."""
    foreign = Owner("Deployment", "web", "crd-1", "example.com/v1")
    town.tell(Seen(Kind.REPLICA_SET, ReplicaSet("default", "web-1", "rs-foreign", "1", foreign, replicas=3)))
    owner = Owner("ReplicaSet", "web-1", "rs-foreign")
    decision = town.decide(town.review(owner), patient=True)
    assert isinstance(decision, Decision) and decision.reason is Reason.NOT_MANAGED


def test_not_synced_admits_unchanged(make_town):
    """Availability first: before every kind has been listed, a pod is admitted as it came."""
    town = make_town(synced=False)
    owner = town.deployment("web", 3)
    assert town.decide(town.review(owner), patient=True).reason is Reason.NOT_SYNCED


def test_an_owner_not_seen_yet_is_waited_for(town):
    """The watch may be behind: ask again; then admitted as it came, or placed once the owner is there."""
    review = town.review(Owner("ReplicaSet", "web-1", "rs-web-1"))
    assert isinstance(town.decide(review, patient=True), Wait)
    assert town.decide(review).reason is Reason.UNKNOWN
    town.deployment("web", 3, "all-in-on-demand")
    assert town.decide(review, patient=True).node_class is NodeClass.ON_DEMAND


def test_a_terminating_pod_gives_its_slot_back(town):
    """M4: a pod on its way out does not count: its successor, created while it drains, gets its slot."""
    owner = town.deployment("web", 3, "custom", "1")
    pods = [town.admit(owner) for _ in range(3)]
    town.show()
    town.terminating(pods[0])
    successor = town.admit(owner)
    assert successor["metadata"]["annotations"]["vacant.io/slot"] == "0"
    assert successor["metadata"]["labels"]["vacant.io/affinity"] == "on-demand"


def test_a_dry_run_holds_nothing(town):
    """M4: a dry run gets the answer that a pod would get, and leaves nothing behind."""
    owner = town.deployment("web", 3, "custom", "1")
    for _ in range(3):
        assert town.decide(town.review(owner, dry_run=True)).slot == 0
    assert town.book.reserved(owner.uid, town.now) == 0
    assert town.decide(town.review(owner)).slot == 0


def test_asked_again_gives_the_same_place(town, patched):
    """M4: a re-invocation (another webhook changed the pod) keeps slot and class, and adds only what is missing."""
    owner = town.deployment("web", 3, "custom", "1")
    review = town.review(owner)
    first = town.decide(review)
    review["request"]["object"] = pod = patched(review, first)
    review["request"]["uid"] = "another-round-trip"
    again = town.decide(review)
    assert (again.slot, again.operations) == (0, [])
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms["nodeSelectorTerms"].append({"matchExpressions": [{"key": "zone", "operator": "Exists"}]})
    once_more = town.decide(review)
    assert once_more.slot == 0
    assert len(once_more.operations) == 1
    assert town.book.reserved(owner.uid, town.now) == 1


def test_copied_markers_are_stripped(town, patched):
    """B20: a template that carries a slot, a token or a class of some other pod does not get away with it."""
    owner = town.deployment("web", 3, "custom", "1")
    town.admit(owner)
    markers = {"vacant.io/slot": "0", "vacant.io/reservation": "copied", "vacant.io/relaxed": "true", "mine": "stays"}
    review = town.review(owner, annotations=markers, labels={"vacant.io/affinity": "on-demand"})
    pod = patched(review, town.decide(review))
    annotations = pod["metadata"]["annotations"]
    assert annotations["vacant.io/slot"] == "1"
    assert annotations["vacant.io/reservation"] != "copied"
    assert "vacant.io/relaxed" not in annotations
    assert annotations["mine"] == "stays"
    assert pod["metadata"]["labels"]["vacant.io/affinity"] == "spot"


def test_reservations_run_out(town):
    """M4: a pod that was admitted and never stored holds its slot for 40 s, not longer."""
    owner = town.deployment("web", 10, "custom", "1")
    town.decide(town.review(owner))
    town.now += 39
    assert town.decide(town.review(owner)).slot == 1
    town.now += 2
    assert town.decide(town.review(owner)).slot == 0


def test_a_replica_set_that_keeps_trying_leaks_nothing(town, classes):
    """M4: refused by quota again and again: once it asks for more than it may have, dead reservations are freed."""
    owner = town.deployment("web", 3, "custom", "1")
    assert [town.decide(town.review(owner)).slot for _ in range(8)] == list(range(8))
    town.now += 6
    assert isinstance(town.decide(town.review(owner), patient=True), Wait), "first the watch gets a randomness"
    assert town.decide(town.review(owner)).slot == 0
    town.now += 6
    pods = [town.admit(owner) for _ in range(3)]
    assert classes(pods).count("O") == 1


def test_young_reservations_are_not_reclaimed(town):
    """A scale-up that the watch has not shown looks the same as a retry: nobody's slot is taken in that moment."""
    owner = town.deployment("web", 2, "custom", "1")
    slots = [town.decide(town.review(owner)).slot for _ in range(6)]
    assert slots == list(range(6))


def test_a_successor_that_comes_before_the_news_of_its_predecessor_waits_for_it(town, classes):
    """M4: the ReplicaSet controller saw a pod go before we did: its successor waits for our watch, and takes its place
    instead of one beyond the last; so does one that comes before the news of a scale-up."""
    owner = town.deployment("web", 5, "custom", "3")
    pods = [town.admit(owner) for _ in range(5)]
    town.show()
    assert classes(pods) == "OOOss"
    review = town.review(owner)
    assert isinstance(town.decide(review, patient=True), Wait)
    town.terminating(pods[0])
    decision = town.decide(review, patient=True)
    assert (decision.slot, decision.node_class) == (0, NodeClass.ON_DEMAND)
    owner = town.deployment("api", 1, "custom", "1")
    town.admit(owner)
    town.show()
    assert isinstance(town.decide(town.review(owner), patient=True), Wait)
    town.deployment("api", 2, "custom", "1")
    assert town.decide(town.review(owner), patient=True).slot == 1


def test_stateful_sets_go_by_ordinal(town, classes):
    """M4: the slot is the ordinal less the start; asked twice, the answer is the same; no deletion cost."""
    owner = town.stateful_set("db", 5, ordinals_start=3)
    pods = [town.admit(owner, ordinal=i) for i in (3, 4, 5, 6, 7, 5, 5)]
    assert classes(pods[:5]) == "OOsOs"
    assert {p["metadata"]["annotations"]["vacant.io/slot"] for p in pods[4:]} == {"4", "2"}
    assert "controller.kubernetes.io/pod-deletion-cost" not in pods[0]["metadata"]["annotations"]
    assert town.book.reserved(owner.uid, town.now) == 5


def test_stateful_set_correction(town):
    """spot.md §1.5-9: when past modes left the set off its sequence, a pod takes the class that makes the total T(R)."""
    owner = town.stateful_set("db", 3, "custom", "1")
    for i in range(3):
        town.admit(owner, ordinal=i)
    shown = {p.name: p for p in town.show()}
    town.workload("StatefulSet", "db", 3, "majority-in-on-demand")
    town.tell(Gone(Kind.POD, shown["db-2"].key, shown["db-2"].uid))
    assert town.admit(owner, ordinal=2)["metadata"]["labels"]["vacant.io/affinity"] == "on-demand"
    town.show()
    town.tell(Gone(Kind.POD, shown["db-1"].key, shown["db-1"].uid))
    assert town.admit(owner, ordinal=1)["metadata"]["labels"]["vacant.io/affinity"] == "spot"


def test_revisions_have_slots_of_their_own(town, classes):
    """M5: in a rollout the new ReplicaSet starts at slot 0 while the old one still holds its own."""
    owner = town.deployment("web", 4, "custom", "2")
    old = [town.admit(owner) for _ in range(4)]
    town.show()
    new_owner = town.replica_set(town.world.workload_by_uid("Deployment-web"), "2", 2)
    new = [town.admit(new_owner) for _ in range(2)]
    assert classes(old) == "OOss"
    assert classes(new) == "OO"


def test_a_pod_tied_to_spot_is_left_alone_and_says_so(town):
    """M9: its own rules contradict its class: admitted with a mark that names the conflict, and holding no slot."""
    owner = town.deployment("web", 3, "all-in-on-demand")
    spec = {"nodeSelector": {CAPACITY: "spot"}, "containers": []}
    pod = town.admit(owner, spec=spec)
    assert pod["spec"] == spec
    assert "nodeSelector" in pod["metadata"]["annotations"]["vacant.io/conflict"]
    assert "vacant.io/slot" not in pod["metadata"]["annotations"]
    assert town.book.reserved(owner.uid, town.now) == 0
    assert town.decide(town.review(owner, spec=spec)).warnings


def test_relaxed_on_demand_is_preferred(town):
    """M10: while on-demand is full, an on-demand pod prefers it, says so, and is required again afterwards."""
    owner = town.deployment("web", 3, "all-in-on-demand")
    note = msgspec.json.encode(memory.Note(relaxed_until=town.now + 60)).decode()
    where = memory.key("mooring-system")
    town.tell(Seen(Kind.CONFIG_MAP, ConfigMap(where.namespace, where.name, "m", "9001", data={"Deployment-web": note})))
    pod = town.admit(owner)
    assert list(pod["spec"]["affinity"]["nodeAffinity"]) == ["preferredDuringSchedulingIgnoredDuringExecution"]
    assert pod["metadata"]["annotations"]["vacant.io/relaxed"] == "true"
    town.now += 61
    pod = town.admit(owner)
    assert list(pod["spec"]["affinity"]["nodeAffinity"]) == ["requiredDuringSchedulingIgnoredDuringExecution"]


def test_pods_older_than_us_count_by_their_node(town):
    """B19: pods without a marker count as the class of the node they run on."""
    town.node("safe", "on-demand")
    owner = town.deployment("web", 3, "custom", "2")
    for i in range(2):
        old = Pod("default", f"old-{i}", f"old-{i}", str(9000 + i), PodShape(), owner=owner, node="safe")
        town.tell(Seen(Kind.POD, old))
    assert town.decide(town.review(owner)).node_class is NodeClass.SPOT


def test_an_administrators_tolerations_and_default(make_town):
    """The policy decides what spot pods tolerate, and what Deployments want by default."""
    town = make_town(MixPolicy(deployment_default="custom:1", spot_tolerations=()))
    owner = town.deployment("web", 3)
    pods = [town.admit(owner) for _ in range(2)]
    assert [p["metadata"]["labels"]["vacant.io/affinity"] for p in pods] == ["on-demand", "spot"]
    assert "tolerations" not in pods[1]["spec"]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_order_of_events_gives_the_exact_split(make_town, data):
    """M4: whatever the order of answers, echoes, deaths and scalings: when all is seen, there are T(R) on-demand pods,
    and what the ledger believes is what a fresh look at the world gives."""
    town = make_town()
    modes = [("majority-in-on-demand", None), ("custom", "3"), ("custom", "30pct"), ("all-in-spot", None)]
    mode, custom = data.draw(st.sampled_from(modes))
    replicas = data.draw(st.integers(1, 8))
    owner = town.deployment("web", replicas, mode, custom)
    deployment = town.world.workload_by_uid("Deployment-web")
    alive: list[dict] = []
    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["create", "show", "kill", "drain", "scale"])):
            case "create":
                while len(alive) < replicas:
                    alive.append(town.admit(owner))
            case "show" if town.unseen:
                town.show(data.draw(st.sampled_from(town.unseen)))
            case "kill" | "drain" as how if seen := [p for p in alive if p not in town.unseen]:
                pod = data.draw(st.sampled_from(seen))
                alive.remove(pod)
                (town.gone if how == "kill" else town.terminating)(pod)
            case "scale":
                while len(alive) < replicas:  # what a loss left behind at that moment is the rebalancer's
                    alive.append(town.admit(owner))
                replicas = data.draw(st.integers(1, 8))
                town.replica_set(deployment, "1", replicas)
                town.show() if town.unseen else None
                while len(alive) > replicas:  # by deletion cost, as the ReplicaSet controller does
                    cheapest = min(
                        alive,
                        key=lambda p: int(p["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"]),
                    )
                    alive.remove(cheapest)
                    town.gone(cheapest)
            case _:
                pass
        town.now += 0.1
    while len(alive) < replicas:
        alive.append(town.admit(owner))
    if town.unseen:
        town.show()
    slots = sorted(int(p["metadata"]["annotations"]["vacant.io/slot"]) for p in alive)
    assert slots == list(range(replicas))
    on_demand = sum(p["metadata"]["labels"]["vacant.io/affinity"] == "on-demand" for p in alive)
    wanted = {"majority-in-on-demand": replicas // 2 + 1, "all-in-spot": 0}.get(mode)
    if wanted is None:
        wanted = min(3, replicas) if custom == "3" else -(-30 * replicas // 100)
    assert on_demand == wanted
    ledger = town.book.ledger(owner.uid)
    if ledger is not None:
        assert sorted(ledger.held()) == slots
        assert ledger.on_demand == wanted


def test_recorded_requests_are_understood(town, patched):
    """What kube-apiserver really sends for an owned, a bare and a dry-run pod is read and answered."""
    with open(f"{__file__.rpartition('/')[0]}/data/admission_reviews.jsonl") as lines:
        reviews = [json.loads(line)["body"] for line in lines]
    pods = [r for r in reviews if r["request"]["kind"]["kind"] == "Pod"]
    owned = next(r for r in pods if r["request"]["name"] == "demo-tidb-0")
    uid = owned["request"]["object"]["metadata"]["ownerReferences"][0]["uid"]
    labels = {ENABLED: "true"}
    town.tell(Seen(Kind.STATEFUL_SET, Workload("StatefulSet", "default", "demo-tidb", uid, "7", labels, replicas=2)))
    decision = town.decide(owned)
    assert isinstance(decision, Decision)
    assert (decision.slot, decision.node_class) == (0, NodeClass.ON_DEMAND)
    pod = patched(owned, decision)
    assert pod["spec"]["tolerations"] == owned["request"]["object"]["spec"]["tolerations"]
    assert [town.decide(r).operations for r in pods if r is not owned] == [[], []]
