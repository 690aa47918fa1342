"""One cache for webhook and rebalancer: what a list says is true of both, however the news of it was lost."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.capabilities.mix.slots import SlotLedger
from mooring.clients.wire import kube
from mooring.core.model.cluster import Key
from mooring.core.model.events import Listed
from mooring.core.model.kinds import Kind


def listed(town, pods) -> Listed:
    return Listed(Kind.POD, tuple(kube.project(Kind.POD, pod) for pod in pods))


def test_a_list_frees_the_slots_of_pods_that_went_unseen(town, classes):
    """M7: 200 of 500 pods went while the watch was cut and its history compacted; the list that follows tells of it:
    their slots are free, the others keep theirs, and the successors bring the split back exactly."""
    owner = town.deployment("web", 500, "majority-in-on-demand")
    pods = [town.admit(owner) for _ in range(500)]
    town.show()
    left = [pod for i, pod in enumerate(pods) if i % 5 not in (1, 3)]
    town.tell(listed(town, left))
    assert len(town.book.ledger(owner.uid)) == 300
    successors = [town.admit(owner) for _ in range(200)]
    town.show()
    assert classes(left + successors).count("O") == 251
    slots = [int(p["metadata"]["annotations"]["vacant.io/slot"]) for p in left + successors]
    assert sorted(slots) == list(range(500))


def test_admissions_in_the_middle_of_a_long_list_do_not_break_the_split(make_town, classes):
    """M7: a list of many pods is taken in part by part and admission goes on meanwhile: who asks for more than it may
    have waits for the next part, and in the end there are T(R) on-demand pods, each slot held once."""
    town = make_town()
    owner = town.deployment("web", 30, "custom", "12")
    pods = [town.admit(owner) for _ in range(30)]
    town.show()
    left = pods[12:]
    made: list[dict] = []
    for _ in town.world.relist(listed(town, left), step=3):
        while len(made) < 12 and len(town.book.ledger(owner.uid)) < 30:
            made.append(town.admit(owner))
    town.show()
    assert len(made) == 12
    assert classes(left + made) == "O" * 12 + "s" * 18


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_after_any_list_the_ledger_is_what_the_world_says(make_town, data):
    """M7: lists, deletes, late and double news in any order: webhook and rebalancer count the same pods."""
    town = make_town()
    town.node("n", "on-demand")
    owner = town.deployment("web", 8, "custom", "3")
    stored: list[dict] = []
    for _ in range(data.draw(st.integers(3, 12))):
        step = data.draw(st.sampled_from(["admit", "show", "gone", "list", "again"]))
        if step == "admit" and len(stored) < 8:
            stored.append(town.admit(owner))
        elif step == "show" and town.unseen:
            town.show(data.draw(st.sampled_from(town.unseen)))
        elif step == "gone" and stored:
            pod = data.draw(st.sampled_from(stored))
            stored.remove(pod)
            if pod in town.unseen:
                town.unseen.remove(pod)
            elif data.draw(st.booleans()):
                town.gone(pod)
        elif step == "list":
            town.unseen.clear()
            town.tell(listed(town, stored))
        elif step == "again":
            for pod in [p for p in stored if p not in town.unseen][:1]:
                town.tell(listed(town, [p for p in stored if p not in town.unseen]))
                assert town.world.pod(Key(pod["metadata"]["namespace"], pod["metadata"]["name"])) is not None
    town.unseen.clear()
    town.tell(listed(town, stored))
    town.now += 41.0
    town.decide(town.review(owner, dry_run=True))
    kept, fresh = town.book.ledger(owner.uid), SlotLedger()
    workload = town.world.workload_by_uid("Deployment-web")
    for pod in town.world.pods_of(workload):
        fresh.put_pod(pod, town.world)
    assert dict(kept) == dict(fresh)
    assert len(fresh) == len(stored)


def test_no_part_of_the_patch_touches_anything_but_affinity_tolerations_and_our_marks(town, patched):
    """M9: scheduler, priority, spread, pod affinity, gates, tolerations, preferences with weight 100: all stay as the
    user wrote them, whatever the class."""
    owner = town.deployment("web", 4, "custom", "2")
    spec = {
        "schedulerName": "batch-scheduler",
        "priorityClassName": "high",
        "nodeSelector": {"zone": "a"},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "schedulingGates": [{"name": "quota"}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "containers": [{"name": "c", "image": "x"}],
        "affinity": {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
                ]
            },
        },
    }
    for _ in range(4):
        review = town.review(owner, spec=json.loads(json.dumps(spec)))
        after = patched(review, town.decide(review))["spec"]
        theirs = after["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert theirs[0] == spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]
        assert after["affinity"]["podAntiAffinity"] == spec["affinity"]["podAntiAffinity"]
        assert after["tolerations"][0] == spec["tolerations"][0]
        ours = {"affinity", "tolerations"}
        assert {k: v for k, v in after.items() if k not in ours} == {k: v for k, v in spec.items() if k not in ours}
