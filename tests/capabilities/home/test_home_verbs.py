"""What a scheduler hears: the home when it is offered, everything otherwise, and never nothing."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.capabilities.home.policy import HomeMode, HomePolicy
from mooring.capabilities.home.verbs import Verbs
from mooring.capabilities.home.wire import BadRequestError
from mooring.core.model.cluster import Owner
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason

NAMES = ["n0", "n1", "n2", "n3"]


def test_home_among_the_candidates_is_the_only_answer(scenario, pod_in_request):
    """H1: only the previous node comes back; every other one is named in FailedNodes with a reason."""
    scenario.cluster({"demo-tidb-2": "n2"})
    answer = scenario.ask("filter", pod_in_request("demo-tidb-2"), NAMES)
    assert answer["NodeNames"] == ["n2"]
    assert answer["Nodes"] is None
    assert answer["Error"] == ""
    assert answer["FailedNodes"] == dict.fromkeys(("n0", "n1", "n3"), "mooring: its home is n2")


def test_home_that_observes_passes_everything_and_says_what_it_would(scenario, pod_in_request):
    """D9: every candidate comes back unchanged; that it would have been the home is told by the reason."""
    scenario.cluster({"demo-tidb-2": "n2"})
    verbs = Verbs(scenario.world, HomePolicy, lambda: True, lambda: True)
    body = {"Pod": pod_in_request("demo-tidb-2"), "Nodes": None, "NodeNames": NAMES}
    said = verbs.filter(json.dumps(body).encode())
    assert (json.loads(said.body)["NodeNames"], json.loads(said.body)["FailedNodes"]) == (NAMES, {})
    assert said.reason is Reason.OBSERVING
    scores = json.loads(verbs.prioritize(json.dumps(body).encode()).body)
    assert {one["Score"] for one in scores} == {0}


@pytest.mark.parametrize(
    ("members", "names"),
    [({"demo-tidb-2": "n9"}, NAMES), ({}, NAMES), ({"demo-tidb-1": "n1"}, NAMES), ({"demo-tidb-2": "n2"}, [])],
    ids=["home not offered", "nothing recorded", "another member's", "no candidates"],
)
def test_without_a_home_everything_passes(scenario, pod_in_request, members, names):
    """H2: previous node not among the candidates, or not known: every candidate comes back unchanged."""
    scenario.cluster(members)
    answer = scenario.ask("filter", pod_in_request("demo-tidb-2"), names)
    assert answer["NodeNames"] == names
    assert answer["FailedNodes"] == {}


def test_pods_that_are_not_ours_pass_untouched(scenario, pod_in_request):
    """H2, H6: TiKV, PD, other workloads, bare pods, no pod at all: no error and no change."""
    scenario.cluster({"demo-tidb-0": "n0", "demo-tikv-0": "n1"})
    tikv = pod_in_request("demo-tikv-0", {"app.kubernetes.io/component": "tikv", "app.kubernetes.io/instance": "demo"})
    strangers = [
        tikv,
        pod_in_request("web-0", {"app": "web"}, owner="web"),
        pod_in_request("demo-tidb-0", {"app.kubernetes.io/component": "tidb"}, owner="x"),
        pod_in_request("demo-tidb-0", namespace="elsewhere"),
        {"metadata": {"name": "bare", "namespace": "tidb"}},
        {"metadata": {}},
        None,
    ]
    for pod in strangers:
        assert scenario.ask("filter", pod, NAMES)["NodeNames"] == NAMES


def test_switched_off_everything_passes(scenario, pod_in_request):
    """H4: off, or not synced yet: everything passes."""
    scenario.cluster({"demo-tidb-2": "n2"})
    scenario.on = False
    assert scenario.ask("filter", pod_in_request("demo-tidb-2"), NAMES)["NodeNames"] == NAMES


def test_a_label_says_otherwise_for_one_cluster(scenario, pod_in_request):
    """H6: `mooring.dev/home: "false"` takes a cluster out; `prefer` makes it a wish."""
    scenario.cluster({"demo-tidb-2": "n2"}, labels={"mooring.dev/home": "false"})
    assert scenario.ask("filter", pod_in_request("demo-tidb-2"), NAMES)["NodeNames"] == NAMES
    scenario.cluster({"demo-tidb-2": "n2"}, labels={"mooring.dev/home": "prefer"})
    assert scenario.ask("filter", pod_in_request("demo-tidb-2"), NAMES)["NodeNames"] == NAMES
    scores = {s["Host"]: s["Score"] for s in scenario.ask("prioritize", pod_in_request("demo-tidb-2"), NAMES)}
    assert scores == {"n0": 0, "n1": 0, "n2": 10, "n3": 0}


def test_any_stateful_set_may_opt_in(scenario, pod_in_request):
    """H6: a labelled StatefulSet is remembered in its annotation; without the label, or with an odd one, it is not ours."""
    places = {"mooring.dev/home": '{"web-0":{"node":"n3"}}'}
    pod = pod_in_request("web-0", {"app": "web"}, owner="web")
    scenario.set("web", annotations=places)
    assert scenario.ask("filter", pod, NAMES)["NodeNames"] == NAMES
    scenario.set("web", annotations=places, labels={"mooring.dev/home": "yes"})
    assert scenario.ask("filter", pod, NAMES)["NodeNames"] == NAMES
    scenario.set("web", annotations=places, labels={"mooring.dev/home": "true"})
    assert scenario.ask("filter", pod, NAMES)["NodeNames"] == ["n3"]
    reused = pod_in_request("web-0", {"app": "web"}, owner="web")
    reused["metadata"]["ownerReferences"][0]["uid"] = "an older web"
    assert scenario.ask("filter", reused, NAMES)["NodeNames"] == NAMES


def test_a_member_that_we_moved_off_is_not_sent_back(scenario, pod_in_request):
    """One queue: Home does not pin a pod to a node that one of our operators moved it off."""
    scenario.cluster({"demo-tidb-2": "n2"}, annotations={"mooring.dev/home": '{"demo-tidb-2":{"left":"n2"}}'})
    assert scenario.ask("filter", pod_in_request("demo-tidb-2"), NAMES)["NodeNames"] == NAMES


def test_an_unreadable_memory_is_no_reason_to_fail(scenario, pod_in_request):
    """H2: never zero nodes because our data is damaged."""
    scenario.cluster({"demo-tidb-2": "n2"}, annotations={"mooring.dev/home": "{not json"})
    assert scenario.ask("filter", pod_in_request("demo-tidb-2"), NAMES)["NodeNames"] == ["n2"]
    scenario.set("web", annotations={"mooring.dev/home": "[1]"}, labels={"mooring.dev/home": "true"})
    assert scenario.ask("filter", pod_in_request("web-0", {}, owner="web"), NAMES)["NodeNames"] == NAMES


def test_reserved_for_others_are_left_free_while_there_is_a_choice(scenario, pod_in_request):
    """H8: members tolerate each other's reservations, so the extender keeps them apart, but never down to nothing."""
    scenario.cluster({"demo-tidb-1": "n9"})
    scenario.reservation("n0", "tidb/demo-tidb-2")
    answer = scenario.ask("filter", pod_in_request("demo-tidb-1"), ["n0", "n1"])
    assert answer["NodeNames"] == ["n1"]
    assert answer["FailedNodes"] == {"n0": "mooring: n0 is reserved for tidb/demo-tidb-2"}
    assert scenario.ask("filter", pod_in_request("demo-tidb-1"), ["n0"])["NodeNames"] == ["n0"]
    assert scenario.ask("filter", pod_in_request("demo-tidb-2"), ["n0", "n1"])["NodeNames"] == ["n0", "n1"]


def test_ones_own_home_is_a_candidate_whoever_has_it_reserved(scenario, pod_in_request):
    """H8: two members may belong to one node; the reservation of one does not drive the other from its home."""
    scenario.cluster({"demo-tidb-1": "n0"}, labels={"mooring.dev/home": "prefer"})
    scenario.reservation("n0", "tidb/demo-tidb-2")
    scenario.reservation("n1", "tidb/demo-tidb-0")
    answer = scenario.ask("filter", pod_in_request("demo-tidb-1"), ["n0", "n1", "n2"])
    assert answer["NodeNames"] == ["n0", "n2"]


def test_preempt_stays_at_home_unless_it_harms_more_there(scenario, pod_in_request):
    """H7: preemption is never refused; at home when it is a candidate and harms no more there than elsewhere."""
    scenario.cluster({"demo-tidb-2": "n2"})

    def ask(violations: int, pod: object) -> set[str]:
        meta = {
            "n1": {"Pods": [{"UID": "a0"}, {"UID": "a1"}], "NumPDBViolations": 0},
            "n2": {"Pods": [{"UID": "b"}, {"UID": "c"}], "NumPDBViolations": violations},
        }
        return scenario.ask("preempt", pod, NodeNameToMetaVictims=meta)["NodeNameToMetaVictims"]

    assert ask(0, pod_in_request("demo-tidb-2")) == {
        "n2": {"Pods": [{"UID": "b"}, {"UID": "c"}], "NumPDBViolations": 0}
    }
    assert set(ask(1, pod_in_request("demo-tidb-2"))) == {"n1", "n2"}
    assert set(ask(0, pod_in_request("demo-tidb-7"))) == {"n1", "n2"}
    assert set(ask(0, None)) == {"n1", "n2"}


@pytest.mark.parametrize(
    ("here", "elsewhere"), [((30, 0), (1, 0)), ((30, 0), (1, 1)), ((1, 1), (30, 0)), ((2, 0), (1, 9))]
)
def test_a_forged_home_costs_no_more_pods_and_no_more_budgets_than_elsewhere(scenario, pod_in_request, here, elsewhere):
    """M4: a tenant writes which node is its pod's home; the scheduler's choice stands wherever that one costs more."""
    scenario.cluster({"demo-tidb-2": "n2"})
    victims = {
        node: {"Pods": [{"UID": f"{node}-{n}"} for n in range(pods)], "NumPDBViolations": violations}
        for node, (pods, violations) in {"n1": elsewhere, "n2": here}.items()
    }
    answer = scenario.ask("preempt", pod_in_request("demo-tidb-2"), NodeNameToMetaVictims=victims)
    assert answer["NodeNameToMetaVictims"] == victims


def test_preempt_reads_whole_pods_too(scenario, pod_in_request):
    """H7: without nodeCacheCapable victims come as whole pods; the answer names their UIDs and keeps the count."""
    victims = {"n1": {"Pods": [{"metadata": {"uid": "a"}}], "NumPDBViolations": 2}}
    answer = scenario.ask("preempt", pod_in_request("x"), NodeNameToVictims=victims)
    assert answer == {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "a"}], "NumPDBViolations": 2}}}


def test_full_nodes_come_back_byte_for_byte(scenario, pod_in_request):
    """H7: full Nodes are sliced out of the request and sent back as they stood, in whatever way they were written."""
    scenario.cluster({"demo-tidb-2": "n2"})
    nodes = [
        '{ "metadata" : {"labels":{"a":"\\u00e9"},"name":"n1"} , "x": 1.50}',
        '{"metadata":{"name":"n2"},"status":{}}',
    ]
    for pod, expected in ((pod_in_request("demo-tidb-2"), nodes[1:]), (pod_in_request("web", {}), nodes)):
        body = f'{{"Pod":{json.dumps(pod)},"Nodes":{{"metadata":{{}},"items":[{",".join(nodes)}]}},"NodeNames":null}}'
        answer = scenario.verbs().filter(body.encode()).body.decode()
        assert f'"items":[{",".join(expected)}]' in answer
    assert json.loads(answer)["NodeNames"] is None


@pytest.mark.parametrize("order", [("Pod", "Nodes", "NodeNames"), ("Nodes", "NodeNames", "Pod")])
def test_large_bodies_with_full_nodes(scenario, pod_in_request, order):
    """H2: above 1 MiB full Nodes are only passed on unless the pod is a member, whatever comes first in the body."""
    scenario.cluster({"demo-tidb-2": "n2"})
    nodes = [{"metadata": {"name": f"n{i}"}, "status": {"images": ["x" * 1000] * 300}} for i in range(5)]

    def asked(pod, nodes):
        given = {"Pod": pod, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None}
        body = json.dumps({key: given[key] for key in order}, separators=(",", ":")).encode()
        assert len(body) > 1 << 20
        return scenario.verbs().filter(body)

    other = pod_in_request("web-0", {"app": "web"}, owner="web")
    answer = asked(other, nodes)
    assert answer.reason is Reason.NOT_MANAGED
    assert json.loads(answer.body)["Nodes"] == {"metadata": {}, "items": nodes}
    kept = json.loads(asked(pod_in_request("demo-tidb-2"), nodes).body)
    assert kept["Nodes"]["items"] == [nodes[2]]
    assert sorted(kept["FailedNodes"]) == ["n0", "n1", "n3", "n4"]
    with pytest.raises(BadRequestError, match="an item of Nodes is not an object"):
        asked(pod_in_request("demo-tidb-2"), [*nodes, 7])


def test_large_bodies_with_nodes_that_are_written_otherwise(scenario, pod_in_request):
    """H7: a Node comes back with all its fields, those that no API server stores too, and one without a name as well."""
    scenario.cluster({"demo-tidb-2": "n2"})
    long = {"status": {"images": ["x" * 1000] * 1100}}
    home = {"kind": "Node", "apiVersion": "v1", "metadata": {"labels": {}, "name": "n2"}, "spec": None, **long}
    for nodes in (
        [{"metadata": {"name": "n1"}}, home],
        [{"x": 1}, home],
        [{"metadata": {"name": "n1"}}, home | {"x": 1.5}],
    ):
        body = json.dumps({"Pod": pod_in_request("demo-tidb-2"), "Nodes": {"items": nodes}}).encode()
        answer = json.loads(scenario.verbs().filter(body).body)
        assert answer["Nodes"]["items"] == nodes[1:]
        assert list(answer["FailedNodes"]) == [nodes[0].get("metadata", {}).get("name", "")]


def test_small_letters_are_read_too(scenario, pod_in_request):
    """H1: both key casings in, Capitalised out."""
    scenario.cluster({"demo-tidb-2": "n2"})
    for key in ("nodenames", "nodeNames", "NodeNames"):
        body = json.dumps({"pod": pod_in_request("demo-tidb-2"), key: NAMES}).encode()
        assert json.loads(scenario.verbs().filter(body).body)["NodeNames"] == ["n2"]
    items = {"items": [{"metadata": {"name": n}} for n in NAMES]}
    body = json.dumps({"pod": pod_in_request("demo-tidb-2"), "nodes": items}).encode()
    assert json.loads(scenario.verbs().filter(body).body)["Nodes"]["items"] == [{"metadata": {"name": "n2"}}]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b'"x"', b'{"Pod": 5}', b'{"NodeNames": "n1"}', b'{"NodeNames": [1]}', b'{"Nodes": []}',
        b'{"Nodes": {"items": 5}}', b'{"Nodes": {"items": [5]}}', b'{"Pod": {"metadata": {"labels": {"a": 1}}}}', b"\xff",
    ],
)  # fmt: skip
def test_bad_input_is_said_in_a_sentence(scenario, body):
    """H7: malformed JSON and wrong shapes raise BadRequestError, which the edge turns into a 400."""
    for verb in ("filter", "prioritize"):
        with pytest.raises(BadRequestError, match=r"must be an Extender|is a Node"):
            getattr(scenario.verbs(), verb)(body)


def test_reasons_are_from_the_one_vocabulary(scenario, pod_in_request):
    """Each answer carries the reason that metrics count."""
    scenario.cluster({"demo-tidb-2": "n2", "demo-tidb-1": "n9"})

    def reason(name: str, labels: dict | None = None) -> Reason:
        pod = pod_in_request(name) if labels is None else pod_in_request(name, labels)
        return scenario.verbs().filter(json.dumps({"Pod": pod, "NodeNames": NAMES}).encode()).reason

    assert reason("demo-tidb-2") == Reason.HOME
    assert reason("demo-tidb-1") == Reason.HOME_ABSENT
    assert reason("demo-tidb-0") == Reason.HOME_UNKNOWN
    assert reason("web", {}) == Reason.NOT_MANAGED
    scenario.on = False
    assert reason("demo-tidb-2") == Reason.FEATURE_OFF


names = st.lists(st.text(st.characters(codec="utf-8"), max_size=12), max_size=8)


@settings(max_examples=150, deadline=None)
@given(names=names, home=st.none() | st.sampled_from(["n0", "n1", "é"]), pick=st.integers(0, 7), full=st.booleans())
def test_the_answer_is_part_of_the_question_and_never_empty(names, home, pick, full):
    """H2: whatever the candidates and the record, the answer is a non-empty part of what was asked, home if it was there."""
    from tests.capabilities.home.conftest import ScenarioBuilder, asked

    scenario = ScenarioBuilder()
    recorded = home or (names[pick % len(names)] if names else "")
    scenario.cluster({"demo-tidb-0": recorded} if recorded else {})
    more = {"Nodes": {"items": [{"metadata": {"name": n}} for n in names]}} if full else {}
    answer = scenario.ask("filter", asked("demo-tidb-0"), None if full else names, **more)
    left = [n["metadata"]["name"] for n in answer["Nodes"]["items"]] if full else answer["NodeNames"]
    assert set(left) <= set(names)
    assert bool(left) == bool(names)
    assert {*left, *answer["FailedNodes"]} == set(names)
    if recorded and recorded in names:
        assert set(left) == {recorded}
    else:
        assert left == names


def test_the_shape_of_a_real_scheduler(scenario):
    """H1, H7: a pod as kube-scheduler 1.36 sends it, with full Nodes, to filter and to prioritize."""
    pod = {
        "metadata": {
            "name": "demo-tidb-0",
            "generateName": "demo-tidb-",
            "namespace": "tidb",
            "labels": {
                "app.kubernetes.io/component": "tidb",
                "app.kubernetes.io/instance": "demo",
                "apps.kubernetes.io/pod-index": "0",
            },
            "ownerReferences": [{"kind": "StatefulSet", "name": "demo-tidb", "uid": "u", "controller": True}],
        },
        "spec": {"containers": [{"name": "tidb", "resources": {"requests": {"cpu": "1"}}}], "priority": 0},
        "status": {"phase": "Pending"},
    }
    scenario.cluster({"demo-tidb-0": "n1"})
    nodes = {"metadata": {}, "items": [{"metadata": {"name": n}, "spec": {}, "status": {"images": []}} for n in NAMES]}
    answer = scenario.ask("filter", pod, None, Nodes=nodes)
    assert answer["Nodes"] == {"metadata": {}, "items": [nodes["items"][1]]}
    assert scenario.ask("prioritize", pod, None, Nodes=nodes)[1] == {"Host": "n1", "Score": 10}


def test_policy_default_and_label_decide_the_mode(scenario, pod_in_request):
    """The installation's default is a wish where it says so, and one cluster may still insist."""
    wish = HomePolicy(mode=HomeMode.PREFER)
    scenario.cluster({"demo-tidb-2": "n2"})
    assert scenario.ask("filter", pod_in_request("demo-tidb-2"), NAMES, wish)["NodeNames"] == NAMES
    scenario.cluster({"demo-tidb-2": "n2"}, labels={"mooring.dev/home": "require"})
    assert scenario.ask("filter", pod_in_request("demo-tidb-2"), NAMES, wish)["NodeNames"] == ["n2"]
    scenario.gone(Kind.TIDB_CLUSTER, "demo")
    assert scenario.ask("filter", pod_in_request("demo-tidb-2"), NAMES, wish)["NodeNames"] == NAMES


def test_a_member_is_known_by_its_owner(scenario, pod_in_request):
    """H3: a release tool has named the instance, or a label was copied: the StatefulSet's owner says whose pod it is."""
    scenario.cluster({"demo-tidb-0": "n0"})
    scenario.set(owner=Owner("TidbCluster", "demo", "tc-uid"))
    scenario.set("web", owner=Owner("Deployment", "web", "web-uid"))
    released = {"app.kubernetes.io/component": "tidb", "app.kubernetes.io/instance": "my-release"}
    assert scenario.ask("filter", pod_in_request("demo-tidb-0", released), ["n0", "n1"])["NodeNames"] == ["n0"]
    assert scenario.ask("filter", pod_in_request("demo-tidb-0", {}), ["n0", "n1"])["NodeNames"] == ["n0"]
    copied = scenario.ask("filter", pod_in_request("demo-tidb-0", owner="web"), ["n0", "n1"])
    assert copied["NodeNames"] == ["n0", "n1"]
