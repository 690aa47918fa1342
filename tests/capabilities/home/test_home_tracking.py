"""Writing nodes down: beside tidb-operator, without it, and what is forgotten."""

from mooring.capabilities.home.bindings import LastBindings
from mooring.capabilities.home.capability import AGAIN_S, Home
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


def evaluate(scenery, key=KEY, now=NOW, notes=None):
    return Home().evaluate(key, scenery.world, Queue(live_settings()), notes, now)


def patches(answer):
    return [i for i in answer.instructions if isinstance(i, Patch)]


def members(answer):
    (patch,) = patches(answer)
    return patch.patch["status"]["tidb"]["members"]


def leaving(source: str, pod: str = "demo-tidb-0") -> dict[str, str]:
    mark = Mark(operator="7", source=source, reason="wrong-class", step="DeletePod", since=0.0, pod_uid=f"{pod}-uid")
    return {LEAVING: write_mark(mark)}


def test_without_tidb_operator_the_node_is_written_at_once(scenery):
    """H3: only our sub-keys, guarded by uid; a new entry has the fields that the CRD requires."""
    scenery.cluster({}, tidb_members=("demo-tidb-1",))
    scenery.set()
    scenery.pod("demo-tidb-0", "n0", ready=True)
    scenery.pod("demo-tidb-1", "n1")
    scenery.pod("demo-tidb-2")
    answer = evaluate(scenery)
    assert members(answer) == {
        "demo-tidb-0": {"name": "demo-tidb-0", "health": True, "node": "n0"},
        "demo-tidb-1": {"node": "n1"},
    }
    (patch,) = patches(answer)
    assert (patch.kind, patch.key, patch.uid) == (Kind.TIDB_CLUSTER, Key("tidb", "demo"), "tc-uid")
    assert set(patch.patch) == {"status"}, "nothing but our own keys is touched"


def test_tidb_operator_gets_its_time_first(scenery):
    """H3: where tidb-operator keeps the status we read; only a node it leaves out for a minute is written by us."""
    scenery.cluster({}, tidb_phase="Normal")
    scenery.set()
    scenery.pod("demo-tidb-0", "n0", created_at=NOW - 10)
    answer = evaluate(scenery)
    assert patches(answer) == []
    assert answer.again_at == NOW - 10 + HomePolicy().settle_s
    assert members(evaluate(scenery, now=NOW + 60))["demo-tidb-0"]["node"] == "n0"


def test_what_is_written_already_is_left_alone(scenery):
    """No write when the record is right, whoever made it."""
    scenery.cluster({"demo-tidb-0": "n0"})
    scenery.set()
    scenery.pod("demo-tidb-0", "n0")
    assert evaluate(scenery).instructions == ()


def test_the_node_survives_the_pod(scenery):
    """H3: a member that is gone or pending keeps its node."""
    scenery.cluster({"demo-tidb-0": "n0", "demo-tidb-1": "n1"})
    scenery.set()
    scenery.pod("demo-tidb-1")
    assert evaluate(scenery).instructions == ()


def test_a_forced_move_is_remembered_and_told(scenery):
    """H3: where a member landed is its home now; an Event on the pod says so."""
    scenery.cluster({"demo-tidb-0": "n0"})
    scenery.set()
    scenery.pod("demo-tidb-0", "n3")
    answer = evaluate(scenery)
    assert members(answer) == {"demo-tidb-0": {"node": "n3"}}
    (told,) = [i for i in answer.instructions if isinstance(i, EmitEvent)]
    assert told.message == "demo-tidb-0 could not go back to n0; n3 is its home from now on"


def test_scaled_in_is_forgotten(scenery):
    """H3: a member that is no longer wanted is forgotten once its pod is gone, and not before."""
    scenery.cluster({"demo-tidb-0": "n0", "demo-tidb-1": "n1"}, tidb_replicas=1)
    scenery.set(replicas=1)
    scenery.pod("demo-tidb-0", "n0")
    scenery.pod("demo-tidb-1", "n1", deletion_at=NOW + 30)
    assert evaluate(scenery).instructions == ()
    scenery.gone(Kind.POD, "demo-tidb-1")
    assert members(evaluate(scenery)) == {"demo-tidb-1": None}


def test_a_record_that_does_not_stick_is_not_written_again_and_again(scenery):
    """A CRD with a status subresource ignores the write: it is tried once a minute, not once a moment."""
    scenery.cluster({})
    scenery.set()
    scenery.pod("demo-tidb-0", "n0")
    answer = evaluate(scenery)
    assert patches(answer)
    answer = evaluate(scenery, now=NOW + 1, notes=answer.notes)
    assert patches(answer) == []
    assert answer.again_at == NOW + AGAIN_S
    assert patches(evaluate(scenery, now=NOW + AGAIN_S, notes=answer.notes))


def test_a_stateful_set_remembers_in_its_annotation(scenery):
    """H6: opted in by label, its members' nodes stand in one annotation; scaled in, they are forgotten."""
    scenery.set("web", 2, labels={HOME: "true"})
    scenery.pod("web-0", "n0", of="web")
    scenery.pod("web-1", "n1", of="web")
    (patch,) = patches(evaluate(scenery, SET))
    text = '{"web-0":{"node":"n0"},"web-1":{"node":"n1"}}'
    assert patch.patch == {"metadata": {"annotations": {HOME: text}}}
    scenery.set("web", 1, labels={HOME: "true"}, annotations={HOME: text})
    scenery.gone(Kind.POD, "web-1")
    (patch,) = patches(evaluate(scenery, SET))
    assert patch.patch == {"metadata": {"annotations": {HOME: '{"web-0":{"node":"n0"}}'}}}


def test_a_stateful_set_that_did_not_opt_in_is_not_written(scenery):
    """H6: off unless asked; a label that says neither yes nor no is called misconfigured."""
    scenery.set("web", 1)
    scenery.pod("web-0", "n0", of="web")
    assert evaluate(scenery, SET).instructions == ()
    scenery.set("web", 1, labels={HOME: "yes"})
    answer = evaluate(scenery, SET)
    assert answer.instructions == ()
    assert "'yes' is not known" in answer.verdict.detail


def test_our_own_move_is_remembered_until_it_has_settled(scenery):
    """One queue: a pod that mix, spot or fleet moves off is not sent back, and its new node becomes its home."""
    scenery.cluster({"demo-tidb-0": "n0"})
    scenery.set()
    scenery.pod("demo-tidb-0", "n0", annotations=leaving("mix"))
    (patch,) = patches(evaluate(scenery))
    text = '{"demo-tidb-0":{"left":"n0"}}'
    assert patch.patch == {"metadata": {"annotations": {HOME: text}}}
    scenery.cluster({"demo-tidb-0": "n0"}, annotations={HOME: text})
    scenery.pod("demo-tidb-0", "", uid="new")
    assert evaluate(scenery).instructions == ()
    scenery.pod("demo-tidb-0", "n4", uid="new")
    assert members(evaluate(scenery)) == {"demo-tidb-0": {"node": "n4"}}
    scenery.cluster({"demo-tidb-0": "n4"}, annotations={HOME: text})
    (patch,) = patches(evaluate(scenery))
    assert patch.patch == {"metadata": {"annotations": {HOME: None}}}


def test_a_hand_over_is_no_move(scenery):
    """A restart by annotation happens in place: the member goes home."""
    scenery.set("web", 1, labels={HOME: "true"})
    scenery.pod("web-0", "n0", of="web", annotations=leaving("handoff", "web-0"))
    (patch,) = patches(evaluate(scenery, SET))
    assert patch.patch == {"metadata": {"annotations": {HOME: '{"web-0":{"node":"n0"}}'}}}


def test_only_what_concerns_a_member_is_looked_at(scenery):
    """Unrelated events cost nothing: no key is touched."""
    home = Home()
    scenery.cluster()
    scenery.set("web")
    scenery.set("store", labels={HOME: "true"})

    def affected_keys(pod):
        return list(home.affected_keys(Change(Kind.POD, pod.key, None, pod), scenery.world))

    assert affected_keys(scenery.pod("web-0", of="web")) == []
    assert affected_keys(scenery.pod("store-0", of="store")) == ["set/tidb/store"]
    assert affected_keys(scenery.pod("demo-tidb-0")) == [KEY]
    node = scenery.node("n0")
    assert list(home.affected_keys(Change(Kind.NODE, node.key, None, node), scenery.world)) == []
    assert list(home.keys(scenery.world)) == ["set/tidb/store", KEY]


def test_what_was_seen_counts_before_it_is_written_down(scenery, pod_in_request):
    """H3: recreated before a leader of ours has written its node down: every replica saw where it was."""
    scenery.cluster({})
    part = scenery.set(owner=Owner("TidbCluster", "demo", "tc-uid"))
    scenery.pod("demo-tidb-0", "n3")
    scenery.gone(Kind.POD, "demo-tidb-0")
    names = ["n0", "n1", "n3"]
    assert scenery.ask("filter", pod_in_request("demo-tidb-0"), names)["NodeNames"] == ["n3"]
    assert scenery.ask("filter", pod_in_request("demo-tidb-1"), names)["NodeNames"] == names
    scenery.pod("demo-tidb-0", uid="next")
    assert scenery.ask("filter", pod_in_request("demo-tidb-0"), names)["NodeNames"] == ["n3"], "still to be scheduled"
    scenery.pod("demo-tidb-0", "n1", uid="next")
    scenery.gone(Kind.POD, "demo-tidb-0")
    assert scenery.ask("filter", pod_in_request("demo-tidb-0"), names)["NodeNames"] == ["n1"], "it follows a move"
    scenery.set(replicas=0, owner=part.owner)
    scenery.set(replicas=3, owner=part.owner)
    assert scenery.ask("filter", pod_in_request("demo-tidb-0"), names)["NodeNames"] == names, "scaled in: forgotten"


def test_what_was_seen_is_newer_than_what_is_written_down(scenery, pod_in_request):
    """H3: a forced move that tidb-operator has not written down yet is followed; one of our own moves is no way back."""
    scenery.cluster({"demo-tidb-0": "n0", "demo-tidb-1": "n1"})
    scenery.set(owner=Owner("TidbCluster", "demo", "tc-uid"))
    scenery.pod("demo-tidb-0", "n3")
    scenery.gone(Kind.POD, "demo-tidb-0")
    names = ["n0", "n1", "n3"]
    assert scenery.ask("filter", pod_in_request("demo-tidb-0"), names)["NodeNames"] == ["n3"]
    mark = Mark(operator="9", source="mix", reason="wrong-class", step="leaving", since=0.0, pod_uid="demo-tidb-1-uid")
    scenery.pod("demo-tidb-1", "n1", annotations={LEAVING: write_mark(mark)})
    scenery.gone(Kind.POD, "demo-tidb-1")
    bindings = scenery.world.index(LastBindings)
    assert bindings.node_of(Key("tidb", "demo-tidb-1"), "demo-tidb") == ""


def test_what_was_seen_goes_with_its_set(scenery):
    """Nothing is kept for ever: a StatefulSet that is gone takes the memory of its pods with it."""
    scenery.set("web")
    scenery.pod("web-0", "n3", of="web")
    scenery.gone(Kind.POD, "web-0")
    bindings = scenery.world.index(LastBindings)
    assert bindings.node_of(Key("tidb", "web-0"), "web") == "n3"
    scenery.gone(Kind.STATEFUL_SET, "web")
    assert vars(bindings) == vars(LastBindings())
