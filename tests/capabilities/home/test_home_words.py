"""What `why` says of a member and of a node that is kept free."""

import pytest

from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.report import explain


def said(scenario, subject):
    lines: dict[str, str] = {}
    for line in explain(subject, scenario.world, HomePolicy()):
        lines[line.label] = line.text
    return lines


@pytest.mark.parametrize(
    ("home", "node", "sentence"),
    [
        ("n0", "n0", "n0 is its home: recreated, it goes back there"),
        ("n0", "", "its home is n0, and it goes back there when n0 can take it"),
        ("n0", "n4", "n0 could not take it; n4 is its home as soon as that is written down"),
        ("", "n4", "no home is written down yet; kube-scheduler chooses"),
    ],
)
def test_why_a_member_is_there(scenario, home, node, sentence):
    """O3: each case in one sentence, and the command that ends it."""
    scenario.cluster({"demo-tidb-0": home} if home else {})
    scenario.set()
    scenario.pod("demo-tidb-0", node)
    lines = said(scenario, "pod/tidb/demo-tidb-0")
    assert lines["why there"] == sentence
    assert lines["to change"].endswith("kubectl -n tidb label tc demo mooring.dev/home=false")


def test_moved_off_by_us(scenario):
    """O3: what one of our operators did is named."""
    scenario.cluster({"demo-tidb-0": "n0"}, annotations={"mooring.dev/home": '{"demo-tidb-0":{"left":"n0"}}'})
    scenario.pod("demo-tidb-0", "")
    assert said(scenario, "pod/tidb/demo-tidb-0")["why there"].startswith("it was moved off n0")


def test_a_held_reservation_is_named_on_both_sides(scenario):
    """O3: on the node, for whom and until when; on the member, where."""
    scenario.cluster({"demo-tidb-2": "n2"})
    scenario.pod("demo-tidb-2", "")
    scenario.reservation("n2", "tidb/demo-tidb-2", until=60.0)
    assert said(scenario, "pod/tidb/demo-tidb-2")["now"] == "n2 is reserved for it"
    assert said(scenario, "node/n2")["now"].startswith("kept free for tidb/demo-tidb-2 until 00:01:00")


def test_nothing_of_what_is_not_ours(scenario):
    """Other pods, other nodes, other kinds: not a word."""
    scenario.set("web")
    scenario.pod("web-0", "n0", of="web")
    for subject in ("pod/tidb/web-0", "pod/tidb/none", "node/n0", "node/none", "operator/1", "machine/x"):
        assert said(scenario, subject) == {}
