"""`mooring fleet plan` as scripts use it: exit codes, stdout, stderr."""

import json
import sys

import pytest
import yaml

from mooring.cli import main
from tests.capabilities.fleet.fleet_making import node, template_document

# The tests set sys.argv and call the entry point itself, which is what a shell does.
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")

NOW = "2026-11-15T00:00:00Z"


def machine(number, *, rack=0, role="cs", state="HEALTHY", duration=1000.0, ipv4=True):
    return {
        "spec": {
            "serial": f"S{number}",
            "labels": None,
            "rack": rack,
            "indexInRack": number,
            "role": role,
            "ipv4": [f"10.69.0.{number}"] if ipv4 else [],
            "registerDate": "2024-01-10T00:00:00Z",
            "retireDate": "2029-01-10T00:00:00Z",
            "bmc": {"bmcType": "iDRAC-9"},
        },
        "status": {"state": state, "duration": duration},
    }


class Desk:
    """Files in a directory and a command line."""

    def __init__(self, where, monkeypatch, capfdbinary):
        self.where, self._monkeypatch, self._capture = where, monkeypatch, capfdbinary
        self.file("t.yml", yaml.safe_dump(template_document(), sort_keys=False))
        self.machines(*(machine(n, rack=n) for n in range(1, 6)))

    def file(self, name, text):
        (self.where / name).write_text(text if isinstance(text, str) else json.dumps(text))

    def machines(self, *machines):
        self.file("m.json", {"data": {"searchMachines": list(machines)}})

    def run(self, *arguments):
        self._monkeypatch.chdir(self.where)
        line = ["mooring", "fleet", "plan", "--template", "t.yml", "--machines", "m.json", *arguments]
        if "--now" not in arguments:
            line += ["--now", NOW]
        self._monkeypatch.setattr(sys, "argv", line)
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capture.readouterr()
        return ended.value.code or 0, out.decode(), err.decode()

    def json(self, *arguments):
        code, out, _ = self.run(*arguments, "-o", "json")
        return code, json.loads(out)


@pytest.fixture
def desk(tmp_path, monkeypatch, capfdbinary):
    return Desk(tmp_path, monkeypatch, capfdbinary)


def test_the_json_has_the_shape_of_the_contract(desk):
    """F11: keys, change words, and the cluster in the shape of cluster.yml."""
    desk.file("c.yml", "control-plane-count: 3\nmaximum-repair-queue-entries: 2\n")
    code, plan = desk.json("--constraints", "c.yml")
    assert code == 0
    assert list(plan) == ["action", "cluster", "changes", "unmet", "error"]
    assert (plan["action"], plan["unmet"], plan["error"]) == ("generate", [], None)
    assert [set(c) for c in plan["changes"]] == [{"address", "serial", "change", "why"}] * 4
    assert list(plan["cluster"]) == ["name", "nodes", "service_subnet"]
    assert {"address", "user", "control_plane", "labels", "annotations", "taints"} <= set(plan["cluster"]["nodes"][0])
    assert [n["control_plane"] for n in plan["cluster"]["nodes"]] == [True, True, True, False]


def test_yaml_says_the_same_as_json(desk):
    """F11: one plan, two spellings; dates and numbers in quotes stay text."""
    code, out, _ = desk.run("-o", "yaml")
    assert code == 0
    assert yaml.safe_load(out) == desk.json()[1]


def test_nothing_to_do_leaves_the_cluster_as_it_is(desk):
    """F5: the current file comes back word for word, CKE's nulls and other people's fields included."""
    current = {
        "name": "other",
        "nodes": [
            {"address": "10.69.0.1", "hostname": "", "user": "x", "control_plane": True, "taints": None},
            {"address": "10.69.0.2", "user": "x", "labels": {"a": "b"}},
        ],
        "extra": [1],
    }
    desk.file("cl.yml", yaml.safe_dump(current))
    code, plan = desk.json("--cluster", "cl.yml")
    assert (code, plan["action"], plan["changes"], plan["cluster"]) == (0, "none", [], current)


def test_a_refusal_exits_3_with_the_plan_on_stdout_and_the_sentence_on_stderr(desk):
    """F3: `cluster` is null."""
    desk.file("c.json", {"minimum-workers": 99})
    code, out, err = desk.run("--constraints", "c.json", "-o", "json")
    plan = json.loads(out)
    assert code == 3 and plan["cluster"] is None and plan["changes"] == []
    assert plan["error"]["code"] == "not-available" and plan["error"]["message"] in err
    assert plan["unmet"] == [{"constraint": "minimum-workers", "wanted": 99, "have": 4}]


def test_proceed_exits_0_with_what_is_unmet(desk):
    """F3: never without any control plane, though."""
    desk.file("c.json", {"minimum-workers": 99})
    code, plan = desk.json("--constraints", "c.json", "--when-short", "proceed")
    assert code == 0 and plan["unmet"] == [{"constraint": "minimum-workers", "wanted": 99, "have": 4}]
    desk.machines(machine(1, state="UNHEALTHY"))
    code, plan = desk.json("--when-short", "proceed")
    assert code == 3 and plan["error"]["code"] == "not-available"


def test_guarded_removal(desk):
    """F5: exit 3 until --yes-remove."""
    nodes = [{"address": f"10.69.0.{n}", "control_plane": n == 1} for n in (1, 2, 20, 21, 22)]
    desk.file("cl.json", {"nodes": nodes})
    code, plan = desk.json("--cluster", "cl.json")
    assert (code, plan["error"]["code"]) == (3, "too-many-non-existent")
    code, plan = desk.json("--cluster", "cl.json", "--yes-remove")
    assert (code, plan["action"]) == (0, "remove-non-existent")
    assert sorted(c["address"] for c in plan["changes"]) == ["10.69.0.20", "10.69.0.21", "10.69.0.22"]


def test_regenerate_and_missing_machine(desk):
    """F2: `--regenerate` writes the same nodes anew."""
    desk.file("cl.json", {"nodes": [{"address": "10.69.0.1", "control_plane": True}, {"address": "10.69.0.2"}]})
    code, plan = desk.json("--cluster", "cl.json", "--regenerate")
    assert (code, plan["action"]) == (0, "regenerate")
    assert {(c["address"], c["change"]) for c in plan["changes"]} == {("10.69.0.1", "update"), ("10.69.0.2", "update")}
    desk.machines(machine(1))
    code, plan = desk.json("--cluster", "cl.json", "--regenerate")
    assert (code, plan["error"]["code"]) == (3, "missing-machine")


def test_taints_of_live_nodes(desk):
    """F7: `--nodes` is what kubectl prints."""
    nodes = {
        "items": [{"metadata": {"name": "10.69.0.1"}, "spec": {"taints": [{"key": "x/y", "effect": "NoSchedule"}]}}]
    }
    desk.file("n.json", nodes)
    code, plan = desk.json("--nodes", "n.json")
    assert code == 0 and plan["cluster"]["nodes"][0]["address"] == "10.69.0.2"


@pytest.mark.parametrize(
    ("name", "text", "arguments", "error", "said"),
    [
        ("t.yml", "name: x", (), "invalid-template", "t.yml: "),
        ("t.yml", "a: [", (), "invalid-template", "t.yml: not YAML"),
        ("m.json", "{", (), "invalid-machines", "m.json: "),
        ("m.json", '[{"spec": {}}]', (), "invalid-machines", "m.json: $[0]"),
        ("c.yml", "minimum-workers: many", ("--constraints", "c.yml"), "invalid-constraints", "c.yml: minimum-workers"),
        ("cl.yml", "nodes: 3", ("--cluster", "cl.yml"), "invalid-cluster", "cl.yml: "),
        ("n.json", "[]", ("--nodes", "n.json"), "invalid-nodes", "n.json: "),
        ("x", "", ("--cluster", "absent.yml"), "invalid-cluster", "absent.yml: cannot be read"),
    ],
)
def test_bad_input_exits_2_and_names_the_file(desk, name, text, arguments, error, said):
    """F2: in JSON too, and never a traceback."""
    desk.file(name, text)
    code, out, err = desk.run(*arguments, "-o", "json")
    assert code == 2 and json.loads(out)["error"]["code"] == error and json.loads(out)["cluster"] is None
    assert said in err and "Traceback" not in err


@pytest.mark.parametrize(
    "arguments", [("--now", "yesterday"), ("--when-short", "maybe"), ("-o", "xml"), ("--wait-retired", "-1")]
)
def test_bad_usage_exits_2(desk, arguments):
    """F11: the message says what would be right."""
    code, out, err = desk.run(*arguments)
    assert code == 2 and out == "" and err


def test_a_machine_without_an_address_is_named_on_stderr(desk):
    """F10: and the rest is planned."""
    desk.machines(machine(1), machine(2), machine(3, ipv4=False))
    code, _, err = desk.run("-o", "json")
    assert code == 0 and "left out, no IPv4 address: S3" in err


def test_the_table_shows_score_and_runner_up(desk):
    """F11: for each changed machine."""
    code, out, err = desk.run()
    assert code == 0 and "generate: 1 control planes, 1 workers" in err
    words = " ".join(out.split())
    assert "10.69.0.1" in words and "score 1002 =" in words and "runner-up" in words


def test_diff_shows_fields(desk):
    """F11: against the current cluster, field by field."""
    desk.machines(machine(1), machine(2, state="UNHEALTHY"), machine(3))
    desk.file("cl.json", desk.json()[1]["cluster"])
    desk.machines(machine(1), machine(2), machine(3, state="RETIRING"))
    code, out, _ = desk.run("--cluster", "cl.json", "--diff")
    assert code == 0 and "+ nodes.10.69.0.2: " in out
    assert {d["path"] for d in desk.json("--cluster", "cl.json", "--diff")[1]["diff"]} >= {"nodes.10.69.0.2"}


def test_several_roles_from_a_file(desk):
    """F2: the design's own example, 6:3:1."""
    workers = [node(role=r, weight=w) for r, w in (("compute", "6.0"), ("storage", "3.0"), ("gpu", "1.0"))]
    document = template_document(*workers, cp=node(cp=True, role="compute"))
    desk.file("t.yml", yaml.safe_dump(document, sort_keys=False))
    desk.machines(
        *(
            machine(n, role=r)
            for i, r in enumerate(("compute", "storage", "gpu"))
            for n in range(i * 20 + 1, i * 20 + 20)
        )
    )
    desk.file("c.json", {"minimum-workers": 10})
    _, plan = desk.json("--constraints", "c.json")
    roles = [n["labels"]["cke.cybozu.com/role"] for n in plan["cluster"]["nodes"][1:]]
    assert (roles.count("compute"), roles.count("storage"), roles.count("gpu")) == (6, 3, 1)
