"""What a person sees: each member, its home, where it is, and the reservations."""

from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.report import report


def test_each_member_in_a_word(scenario):
    """At home, away, pending, leaving or missing; held reservations by node."""
    homes = {f"demo-tidb-{i}": f"n{i}" for i in range(5)}
    scenario.cluster(homes, tidb_replicas=5, labels={"mooring.dev/reserve-node": "true"})
    scenario.set(replicas=5)
    scenario.pod("demo-tidb-0", "n0")
    scenario.pod("demo-tidb-1", "n9")
    scenario.pod("demo-tidb-2", "")
    scenario.pod("demo-tidb-3", "n3", deletion_at=50.0)
    scenario.reservation("n3", "tidb/demo-tidb-3", until=170.0)
    shown = report(scenario.world, HomePolicy(), 20.0)
    assert {m["member"]: m["state"] for m in shown["members"]} == {
        "demo-tidb-0": "home",
        "demo-tidb-1": "away",
        "demo-tidb-2": "pending",
        "demo-tidb-3": "leaving",
        "demo-tidb-4": "missing",
    }
    assert [(m["member"], m["reserved"]) for m in shown["members"] if m["reserved"]] == [("demo-tidb-3", "n3")]
    assert shown["reservations"] == [{"node": "n3", "pod": "tidb/demo-tidb-3", "since": 0.0, "until": 170.0}]


def test_only_what_has_a_home_is_listed(scenario):
    """A cluster that opted out and a StatefulSet that did not opt in are not there."""
    scenario.cluster({"demo-tidb-0": "n0"}, labels={"mooring.dev/home": "false"})
    scenario.set("web")
    scenario.pod("web-0", "n1", of="web")
    assert report(scenario.world, HomePolicy(), 0.0)["members"] == []
