"""The template, the constraints, the current cluster and node lists: every rule, with a message that names the place."""

import pytest

from mooring.capabilities.fleet.planner.current import Current, parse_cluster, parse_node_taints
from mooring.capabilities.fleet.planner.decide import decide, write_cluster
from mooring.capabilities.fleet.planner.document import ErrorCode, PlanError, decode_document
from mooring.capabilities.fleet.planner.template import Constraints, Template, parse_constraints, parse_template
from mooring.clients.wire.document import encode_yaml
from tests.capabilities.fleet.fleet_making import address, limits, m, node, template, template_document, view

MINIMAL = b"""
name: cluster
nodes:
- user: cybozu
  control_plane: true
- user: cybozu
  control_plane: false
service_subnet: 10.68.0.0/16
"""


def test_the_minimal_template_of_the_design_is_valid():
    """F2: as printed there."""
    made = parse_template(decode_document(MINIMAL, "t.yml", ErrorCode.INVALID_TEMPLATE))
    assert isinstance(made, Template)
    assert (made.control_plane.role, len(made.workers), made.workers[0].weight) == ("", 1, 1.0)


BAD_TEMPLATES = [
    (template_document(name=""), "name: the cluster's name is missing"),
    (template_document(service_subnet="10.68.0.0"), "service_subnet: '10.68.0.0' is not a CIDR"),
    ({"name": "c", "service_subnet": "10.0.0.0/8", "nodes": None}, "nodes: must be a list"),
    ([], "must be a map in the form of cluster.yml, not a list"),
    (template_document(cp=node()), "exactly one must have control_plane: true, not 0"),
    (template_document(node(cp=True), node()), "exactly one must have control_plane: true, not 2"),
    ({**template_document(), "nodes": [node(cp=True)]}, "at least one must not have control_plane: true"),
    (template_document(node(address="10.0.0.1")), "nodes[1].address: must be empty in a template"),
    (template_document({"control_plane": False}), "nodes[1].user: is missing"),
    (template_document({"user": "x", "control_plane": "no"}), "nodes[1].control_plane: must be true or false"),
    (template_document({"user": "x", "labels": {"a b": "c"}}), "nodes[1].labels: key 'a b' is not a Kubernetes key"),
    (template_document({"user": "x", "labels": {"a": 6}}), 'nodes[1].labels[\'a\']: must be text, not a number; put it in quotes: "6"'),
    (template_document({"user": "x", "labels": {"a": "b c"}}), "'b c' is not a label value"),
    (template_document({"user": "x", "annotations": {"a/b/c": "d"}}), "nodes[1].annotations: key 'a/b/c'"),
    (template_document({"user": "x", "taints": [{"key": "a", "effect": "Never"}]}), "nodes[1].taints[0].effect: 'Never' is none of"),
    (template_document({"user": "x", "taints": [{"effect": "NoExecute"}]}), "nodes[1].taints[0].key: None"),
    (template_document({"user": "x", "taints": [{"key": "cke.cybozu.com/state", "effect": "NoExecute"}]}), "follows the machine's state"),
    (template_document(node(role="a"), node()), "nodes[2].labels: cke.cybozu.com/role is missing"),
    (template_document(node(role="a"), node(role="a")), "role 'a' is that of nodes[1] already"),
    *[(template_document(node(role="a"), node(role=r)), "nodes[2].labels['cke.cybozu.com/role']: must be text") for r in (["a"], {"a": "b"}, 5)],
    *[(template_document(node(weight=w)), "must be a number above 0 in quotes") for w in ("0", "-1", "nan", "inf", "1e999", "three", "1_0")],
    (template_document(control_plane_tolerations=["a b"]), "control_plane_tolerations[0]: 'a b'"),
    (template_document(control_plane_tolerations="a"), "control_plane_tolerations: must be a list"),
    (template_document(dns_servers=["ns1"]), "dns_servers[0]: 'ns1' is not an IP address"),
    (template_document(dns_service="coredns"), "dns_service: 'coredns' is not namespace/name"),
    (template_document(reboot={"eviction_timeout_seconds": 0}), "reboot.eviction_timeout_seconds: must be a whole number of at least 1"),
    (template_document(repair={"max_concurrent_repairs": -1}), "repair.max_concurrent_repairs"),
    (template_document(options={"kubelet": {"cri_endpoint": ""}}), "options.kubelet.cri_endpoint: is empty"),
    (template_document(options={"etcd": {"extra_binds": [{"source": "a", "destination": "/b"}]}}), "options.etcd.extra_binds[0].source: must be an absolute path"),
    (template_document(options={"kube-proxy": {"config": {"kind": "X"}}}), "options.kube-proxy.config: must have apiVersion kubeproxy.config.k8s.io/"),
    (template_document(options={"kube-api": {"audit_log_enabled": True}}), "options.kube-api.audit_log_policy: is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "said"), BAD_TEMPLATES)
def test_a_bad_template_is_refused_with_its_place(document, said):
    """F2: file, path and what would be right."""
    made = parse_template(document, "t.yml")
    assert isinstance(made, PlanError)
    assert made.code is ErrorCode.INVALID_TEMPLATE
    assert made.message.startswith("t.yml: ") and said in made.message


def test_all_problems_of_a_file_are_told_at_once():
    """F2: mended in one go."""
    made = parse_template(template_document(node(weight="0"), name="", dns_servers=["x"]), "t.yml")
    assert isinstance(made, PlanError)
    assert all(part in made.message for part in ("name:", "dns_servers[0]", "weight"))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"control-plane-count": 0}, "control-plane-count: must be a whole number of at least 1, not 0"),
        ({"minimum-workers": -1}, "minimum-workers: must be a whole number of at least 0"),
        ({"minimum-workers": "3"}, "not '3'"),
        ({"minimum-workers": True}, "not True"),
        ({"maximum-workers": 2.5}, "not 2.5"),
        ({"minimum-workers": 5, "maximum-workers": 4}, "maximum-workers 4 is below minimum-workers 5"),
        ({"minimum-worker": 5}, "minimum-worker: no such constraint; minimum-workers is meant?"),
        ([1], "a map such as"),
    ],
)
def test_bad_constraints_are_refused(document, said):
    """F3: CKE takes them all and fails later."""
    made = parse_constraints(document, "c.yml")
    assert isinstance(made, PlanError) and made.code is ErrorCode.INVALID_CONSTRAINTS
    assert said in made.message


def test_constraints_have_defaults_and_ckes_other_keys_are_noted():
    """F3: 1, 1 and no maximum."""
    assert parse_constraints(None) == Constraints(1, 1, 0)
    made = parse_constraints({"maximum-repair-queue-entries": 3, "control-plane-count": 2}, "c.yml")
    assert isinstance(made, Constraints)
    assert made.notes[0] == "c.yml: maximum-repair-queue-entries is CKE's and has no effect here"
    assert "odd numbers" in made.notes[1]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"name": "x"}, "a map with a list of nodes"),
        ({"nodes": [{"user": "x"}]}, "nodes[0].address: None is not an IP address"),
        ({"nodes": [{"address": "10.0.0.1"}, {"address": "10.0.0.1"}]}, "10.0.0.1 is that of nodes[0] already"),
        ({"nodes": [{"address": "10.0.0.1", "control_plane": "yes"}]}, "nodes[0].control_plane"),
        ({"nodes": [{"address": "10.0.0.1", "taints": ["x"]}]}, "nodes[0].taints"),
        ({"nodes": ["x"]}, "nodes[0]: must be a map, not text"),
    ],
)
def test_a_bad_current_cluster_is_refused(document, said):
    """F2: nothing is planned from a file that is only half understood."""
    made = parse_cluster(document, "cluster.yml")
    assert isinstance(made, PlanError) and made.code is ErrorCode.INVALID_CLUSTER
    assert said in made.message


def test_a_current_cluster_as_cke_writes_it():
    """F2: `taints: null` and an empty hostname are fine."""
    made = parse_cluster(
        {"nodes": [{"address": "10.0.0.1", "hostname": "", "control_plane": True, "taints": None, "labels": None}]}
    )
    assert isinstance(made, Current) and made.members[0].control_plane


def test_node_lists():
    """F7: names and taint keys; anything else is refused."""
    good = {
        "items": [
            {"metadata": {"name": "a"}, "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}},
            {"metadata": {"name": "b"}, "spec": {}},
        ]
    }
    assert parse_node_taints(good) == {"a": ("k",), "b": ()}
    for bad in ([], {"items": None}, {"items": [{"spec": {}}]}, {"items": ["x"]}):
        made = parse_node_taints(bad, "nodes.json")
        assert isinstance(made, PlanError) and made.code is ErrorCode.INVALID_NODES


TOLERATED = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unschedulable", "cke.cybozu.com/state", "cke.cybozu.com/master", "node.cilium.io/agent-not-ready", "own.example.com/plane", "mooring.dev/retiring"]  # fmt: skip


@pytest.mark.parametrize("key", TOLERATED)
def test_tolerated_taints_leave_a_control_plane_alone(key):
    """F7: the design's list, the template's tolerations, the template's own taints, and ours."""
    made = template(
        cp=node(cp=True, taints=[{"key": "own.example.com/plane", "effect": "NoSchedule"}]),
        control_plane_tolerations=["node.cilium.io/agent-not-ready"],
    )
    current = parse_cluster({"nodes": [{"address": address(n), "control_plane": n < 3} for n in (1, 2, 3)]})
    plan = decide(
        view(
            [m(1), m(2), m(3), m(4)],
            template=made,
            current=current,
            constraints=limits(2),
            node_taints={address(1): (key,)},
        )
    )
    assert plan.action == "none"


# ── what is written ───────────────────────────────────────────────────────────────────────────────────────────────


def test_everything_but_nodes_is_carried_over_in_its_order():
    """F2: untouched, unknown fields too, with `nodes` where it was."""
    document = {
        "name": "c",
        "zzz": {"b": [1, None], "a": 1},
        **{k: v for k, v in template_document().items() if k != "name"},
        "aaa": "2024-01-10",
    }
    made = parse_template(document)
    assert isinstance(made, Template)
    v = view([m(1), m(2)], template=made)
    written = write_cluster(v, decide(v))
    assert written is not None
    assert list(written) == list(document)
    assert {k: x for k, x in written.items() if k != "nodes"} == {k: x for k, x in document.items() if k != "nodes"}


def test_labels_annotations_and_taints_of_the_tables():
    """F8: every row, the computed ones over the template's over the machine's."""
    machine = m(
        1,
        rack=7,
        role="cs",
        labels={"product": "R640"},
        register_date="2024-01-10T08:00:00+09:00",
        retire_date="2029-12-31T23:59:59Z",
    )
    made = template(cp=node(cp=True, role="cs", annotations={"note": "x", "cke.cybozu.com/serial": "forged"}))
    v = view([machine, m(2, state="HEALTHY")], template=made)
    written = write_cluster(v, decide(v))
    assert written is not None
    plane = written["nodes"][0]
    assert plane == {
        "address": "10.69.0.1",
        "user": "cybozu",
        "control_plane": True,
        "annotations": {
            "note": "x",
            "cke.cybozu.com/serial": "S1",
            "cke.cybozu.com/register-date": "2024-01-10T08:00:00+09:00",
            "cke.cybozu.com/retire-date": "2029-12-31T23:59:59Z",
        },
        "labels": {
            "sabakan.cke.cybozu.com/product": "R640",
            "cke.cybozu.com/role": "cs",
            "cke.cybozu.com/rack": "7",
            "cke.cybozu.com/index-in-rack": "1",
            "node-role.kubernetes.io/cs": "true",
            "cke.cybozu.com/register-month": "2024-01",
            "cke.cybozu.com/retire-month": "2029-12",
            "topology.kubernetes.io/zone": "rack7",
            "failure-domain.beta.kubernetes.io/zone": "rack7",
            "node-role.kubernetes.io/master": "true",
            "node-role.kubernetes.io/control-plane": "true",
        },
        "taints": [],
    }
    worker = written["nodes"][1]
    assert "node-role.kubernetes.io/master" not in worker["labels"]


def test_the_state_taint_comes_after_the_templates_own():
    """F8: and the worker's weight stays a label, as CKE has it."""
    made = template(node(role="cs", weight="2.0", taints=[{"key": "a/b", "value": "c", "effect": "NoSchedule"}]))
    current = parse_cluster({"nodes": [{"address": address(1), "control_plane": True}, {"address": address(2)}]})
    v = view([m(1), m(2, state="RETIRING"), m(3)], template=made, current=current, constraints=limits(1, 0))
    written = write_cluster(v, decide(v))
    assert written is not None
    assert written["nodes"][1]["taints"] == [
        {"key": "a/b", "value": "c", "effect": "NoSchedule"},
        {"key": "cke.cybozu.com/state", "value": "retiring", "effect": "NoExecute"},
    ]
    assert written["nodes"][1]["labels"]["cke.cybozu.com/weight"] == "2.0"


def test_dates_without_text_are_written_in_utc():
    """F8: for machines that never were text (the sandbox's)."""
    v = view([m(1), m(2)])
    written = write_cluster(v, decide(v))
    assert written is not None
    assert written["nodes"][0]["annotations"]["cke.cybozu.com/register-date"] == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-10",
        "1:30",
        "12e5",
        "0x1f",
        "007",
        "1_000",
        "yes",
        "null",
        "~",
        "",
        "10.0.0.1",
        "n",
        "1e3",
        "+1",
        ".5",
        "a: b",
        "é",
    ],
)
def test_text_survives_yaml(text):
    """F2: what is a string stays one, out and in again."""
    out = encode_yaml({"a": text, text or "k": [text]})
    assert decode_document(out.encode(), "x", ErrorCode.INVALID_CLUSTER) == {"a": text, text or "k": [text]}


def test_yaml_reads_what_is_written_not_what_yaml_1_1_makes_of_it():
    """F2: dates and base-60 numbers stay text, numbers stay numbers."""
    read = decode_document(
        b"a: 2024-01-10\nb: 1:30\nc: 12\nd: 1.5\ne: true\nf: 0x10\ng: 1e3\n", "x", ErrorCode.INVALID_CLUSTER
    )
    assert read == {"a": "2024-01-10", "b": "1:30", "c": 12, "d": 1.5, "e": True, "f": 16, "g": 1000.0}


@pytest.mark.parametrize(
    "raw",
    [
        b"a: 1\na: 2\n",
        b"{a: [",
        b'{"a": 1,',
        b"a:\n\t- b",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"a: " + b"[" * 100_000,
        b"- " * 100_000,
    ],
)
def test_unreadable_documents_are_errors_that_name_the_file(raw):
    """F2: a key given twice is one of them."""
    made = decode_document(raw, "t.yml", ErrorCode.INVALID_TEMPLATE)
    assert isinstance(made, PlanError) and made.message.startswith("t.yml: ")
