"""Writing nodes down: beside tidb-operator, without it, and what is forgotten."""

from mooring.capabilities.home.capability import RETRY_WRITE_S, Home
from mooring.capabilities.home.memory import LastBindings
from mooring.capabilities.home.policy import HomePolicy
from mooring.core.model.cluster import Key, Owner
from mooring.core.model.events import Change
from mooring.core.model.instructions import EmitEvent, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HOME, LEAVING, Mark, write_mark
from mooring.core.queue import Queue, live_settings

KEY = "tidb/tidb/demo"
SET = "set/tidb/web"
NOW = 10_000.0


def evaluate(scenario, key=KEY, now=NOW, notes=None):
    return Home().evaluate(key, scenario.world, Queue(live_settings()), notes, now)


def patches(answer):
    return [i for i in answer.instructions if isinstance(i, Patch)]


def members(answer):
    (patch,) = patches(answer)
    return patch.patch["status"]["tidb"]["members"]


def leaving(source: str, pod: str = "demo-tidb-0") -> dict[str, str]:
    mark = Mark(operator="7", source=source, reason="wrong-class", step="DeletePod", since=0.0, pod_uid=f"{pod}-uid")
    return {LEAVING: write_mark(mark)}


def test_without_tidb_operator_the_node_is_written_at_once(scenario):
    """H3: only our sub-keys, guarded by uid; a new entry has the fields that the CRD requires."""
    scenario.cluster({}, tidb_members=("demo-tidb-1",))
    scenario.set()
    scenario.pod("demo-tidb-0", "n0", ready=True)
    scenario.pod("demo-tidb-1", "n1")
    scenario.pod("demo-tidb-2")
    answer = evaluate(scenario)
    assert members(answer) == {
        "demo-tidb-0": {"name": "demo-tidb-0", "health": True, "node": "n0"},
        "demo-tidb-1": {"node": "n1"},
    }
    (patch,) = patches(answer)
    assert (patch.kind, patch.key, patch.uid) == (Kind.TIDB_CLUSTER, Key("tidb", "demo"), "tc-uid")
    assert set(patch.patch) == {"status"}, "nothing but our own keys is touched"


def test_tidb_operator_gets_its_time_first(scenario):
    """H3: where tidb-operator keeps the status we read; only a node it leaves out for a minute is written by us."""
    scenario.cluster({}, tidb_phase="Normal")
    scenario.set()
    scenario.pod("demo-tidb-0", "n0", created_at=NOW - 10)
    answer = evaluate(scenario)
    assert patches(answer) == []
    assert answer.again_at == NOW - 10 + HomePolicy().settle_s
    assert members(evaluate(scenario, now=NOW + 60))["demo-tidb-0"]["node"] == "n0"


def test_what_is_written_already_is_left_alone(scenario):
    """No write when the record is right, whoever made it."""
    scenario.cluster({"demo-tidb-0": "n0"})
    scenario.set()
    scenario.pod("demo-tidb-0", "n0")
    assert evaluate(scenario).instructions == ()


def test_the_node_survives_the_pod(scenario):
    """H3: a member that is gone or pending keeps its node."""
    scenario.cluster({"demo-tidb-0": "n0", "demo-tidb-1": "n1"})
    scenario.set()
    scenario.pod("demo-tidb-1")
    assert evaluate(scenario).instructions == ()


def test_a_forced_move_is_remembered_and_told(scenario):
    """H3: where a member landed is its home now; an Event on the pod says so."""
    scenario.cluster({"demo-tidb-0": "n0"})
    scenario.set()
    scenario.pod("demo-tidb-0", "n3")
    answer = evaluate(scenario)
    assert members(answer) == {"demo-tidb-0": {"node": "n3"}}
    (told,) = [i for i in answer.instructions if isinstance(i, EmitEvent)]
    assert told.message == "demo-tidb-0 could not go back to n0; n3 is its home from now on"


def test_scaled_in_is_forgotten(scenario):
    """H3: a member that is no longer wanted is forgotten once its pod is gone, and not before."""
    scenario.cluster({"demo-tidb-0": "n0", "demo-tidb-1": "n1"}, tidb_replicas=1)
    scenario.set(replicas=1)
    scenario.pod("demo-tidb-0", "n0")
    scenario.pod("demo-tidb-1", "n1", deletion_at=NOW + 30)
    assert evaluate(scenario).instructions == ()
    scenario.gone(Kind.POD, "demo-tidb-1")
    assert members(evaluate(scenario)) == {"demo-tidb-1": None}


def test_a_record_that_does_not_stick_is_not_written_again_and_again(scenario):
    """A CRD with a status subresource ignores the write: it is tried once a minute, not once a moment."""
    scenario.cluster({})
    scenario.set()
    scenario.pod("demo-tidb-0", "n0")
    answer = evaluate(scenario)
    assert patches(answer)
    answer = evaluate(scenario, now=NOW + 1, notes=answer.notes)
    assert patches(answer) == []
    assert answer.again_at == NOW + RETRY_WRITE_S
    assert patches(evaluate(scenario, now=NOW + RETRY_WRITE_S, notes=answer.notes))


def test_a_stateful_set_remembers_in_its_annotation(scenario):
    """H6: opted in by label, its members' nodes stand in one annotation; scaled in, they are forgotten."""
    scenario.set("web", 2, labels={HOME: "true"})
    scenario.pod("web-0", "n0", of="web")
    scenario.pod("web-1", "n1", of="web")
    (patch,) = patches(evaluate(scenario, SET))
    text = '{"web-0":{"node":"n0"},"web-1":{"node":"n1"}}'
    assert patch.patch == {"metadata": {"annotations": {HOME: text}}}
    scenario.set("web", 2, labels={HOME: "true"}, annotations={HOME: text})
    scenario.gone(Kind.POD, "web-1")
    assert patches(evaluate(scenario, SET)) == [], "one that is away and wanted is remembered"
    scenario.set("web", 1, labels={HOME: "true"}, annotations={HOME: text})
    (patch,) = patches(evaluate(scenario, SET))
    assert patch.patch == {"metadata": {"annotations": {HOME: '{"web-0":{"node":"n0"}}'}}}


def test_a_stateful_set_that_did_not_opt_in_is_not_written(scenario):
    """H6: off unless asked; a label that says neither yes nor no is called misconfigured."""
    scenario.set("web", 1)
    scenario.pod("web-0", "n0", of="web")
    assert evaluate(scenario, SET).instructions == ()
    scenario.set("web", 1, labels={HOME: "yes"})
    answer = evaluate(scenario, SET)
    assert answer.instructions == ()
    assert "'yes' is not known" in answer.verdict.detail


def test_our_own_move_is_remembered_until_it_has_settled(scenario):
    """One queue: a pod that mix, spot or fleet moves off is not sent back, and its new node becomes its home."""
    scenario.cluster({"demo-tidb-0": "n0"})
    scenario.set()
    scenario.pod("demo-tidb-0", "n0", annotations=leaving("mix"))
    (patch,) = patches(evaluate(scenario))
    text = '{"demo-tidb-0":{"left":"n0"}}'
    assert patch.patch == {"metadata": {"annotations": {HOME: text}}}
    scenario.cluster({"demo-tidb-0": "n0"}, annotations={HOME: text})
    scenario.pod("demo-tidb-0", "", uid="new")
    assert evaluate(scenario).instructions == ()
    scenario.pod("demo-tidb-0", "n4", uid="new")
    assert members(evaluate(scenario)) == {"demo-tidb-0": {"node": "n4"}}
    scenario.cluster({"demo-tidb-0": "n4"}, annotations={HOME: text})
    (patch,) = patches(evaluate(scenario))
    assert patch.patch == {"metadata": {"annotations": {HOME: None}}}


def test_a_hand_over_is_no_move(scenario):
    """A restart by annotation happens in place: the member goes home."""
    scenario.set("web", 1, labels={HOME: "true"})
    scenario.pod("web-0", "n0", of="web", annotations=leaving("handoff", "web-0"))
    (patch,) = patches(evaluate(scenario, SET))
    assert patch.patch == {"metadata": {"annotations": {HOME: '{"web-0":{"node":"n0"}}'}}}


def test_only_what_concerns_a_member_is_looked_at(scenario):
    """Unrelated events cost nothing: no key is touched."""
    home = Home()
    scenario.cluster()
    scenario.set("web")
    scenario.set("store", labels={HOME: "true"})

    def affected_keys(pod):
        return list(home.affected_keys(Change(Kind.POD, pod.key, None, pod), scenario.world))

    assert affected_keys(scenario.pod("web-0", of="web")) == []
    assert affected_keys(scenario.pod("store-0", of="store")) == ["set/tidb/store"]
    assert affected_keys(scenario.pod("demo-tidb-0")) == [KEY]
    node = scenario.node("n0")
    assert list(home.affected_keys(Change(Kind.NODE, node.key, None, node), scenario.world)) == []
    assert list(home.keys(scenario.world)) == ["set/tidb/store", KEY]


def test_what_was_seen_counts_before_it_is_written_down(scenario, pod_in_request):
    """H3: recreated before a leader of ours has written its node down: every replica saw where it was."""
    scenario.cluster({})
    part = scenario.set(owner=Owner("TidbCluster", "demo", "tc-uid"))
    scenario.pod("demo-tidb-0", "n3")
    scenario.gone(Kind.POD, "demo-tidb-0")
    names = ["n0", "n1", "n3"]
    assert scenario.ask("filter", pod_in_request("demo-tidb-0"), names)["NodeNames"] == ["n3"]
    assert scenario.ask("filter", pod_in_request("demo-tidb-1"), names)["NodeNames"] == names
    scenario.pod("demo-tidb-0", uid="next")
    assert scenario.ask("filter", pod_in_request("demo-tidb-0"), names)["NodeNames"] == ["n3"], "still to be scheduled"
    scenario.pod("demo-tidb-0", "n1", uid="next")
    scenario.gone(Kind.POD, "demo-tidb-0")
    assert scenario.ask("filter", pod_in_request("demo-tidb-0"), names)["NodeNames"] == ["n1"], "it follows a move"
    scenario.set(replicas=0, owner=part.owner)
    scenario.set(replicas=3, owner=part.owner)
    assert scenario.ask("filter", pod_in_request("demo-tidb-0"), names)["NodeNames"] == names, "scaled in: forgotten"


def test_what_was_seen_is_newer_than_what_is_written_down(scenario, pod_in_request):
    """H3: a forced move that tidb-operator has not written down yet is followed; one of our own moves is no way back."""
    scenario.cluster({"demo-tidb-0": "n0", "demo-tidb-1": "n1"})
    scenario.set(owner=Owner("TidbCluster", "demo", "tc-uid"))
    scenario.pod("demo-tidb-0", "n3")
    scenario.gone(Kind.POD, "demo-tidb-0")
    names = ["n0", "n1", "n3"]
    assert scenario.ask("filter", pod_in_request("demo-tidb-0"), names)["NodeNames"] == ["n3"]
    mark = Mark(operator="9", source="mix", reason="wrong-class", step="leaving", since=0.0, pod_uid="demo-tidb-1-uid")
    scenario.pod("demo-tidb-1", "n1", annotations={LEAVING: write_mark(mark)})
    scenario.gone(Kind.POD, "demo-tidb-1")
    bindings = scenario.world.index(LastBindings)
    assert bindings.node_of(Key("tidb", "demo-tidb-1"), "demo-tidb") == ""


def test_what_was_seen_goes_with_its_set(scenario):
    """Nothing is kept for ever: a StatefulSet that is gone takes the memory of its pods with it."""
    scenario.set("web")
    scenario.pod("web-0", "n3", of="web")
    scenario.gone(Kind.POD, "web-0")
    bindings = scenario.world.index(LastBindings)
    assert bindings.node_of(Key("tidb", "web-0"), "web") == "n3"
    scenario.gone(Kind.STATEFUL_SET, "web")
    assert vars(bindings) == vars(LastBindings())
