"""M8: all signs of one node are read, and the earliest deadline counts."""

import json

import pytest

from mooring.capabilities.drain.signals import (
    DETECTORS,
    INTERRUPT_AT,
    Detector,
    NoticeKind,
    Sign,
    departures,
    earliest,
    signals_of,
    unread,
)
from mooring.core.model.cluster import Node, Taint
from mooring.core.model.marks import AGENT, TERMINATES_AT, Mark

NOW = 1_800_000_000.0
IN_AN_HOUR = {INTERRUPT_AT: "2027-01-15T09:00:00Z"}
SPOT = Taint("aws-node-termination-handler/spot-itn", "NoSchedule")
KARPENTER = Taint("karpenter.sh/disrupted", "NoSchedule")


def node(*taints, annotations=None):
    return Node("", "n1", "uid-n1", "1", taints=taints, annotations=annotations or {})


def deadline(of, mark=None, now=NOW, detectors=DETECTORS):
    found = earliest(signals_of(of, detectors, spot=True), mark, now)
    assert found is not None
    return found[0].name, None if found[1] is None else found[1] - NOW


def test_maintenance_in_an_hour_and_a_spot_notice_of_two_minutes_are_two_minutes():
    assert deadline(node(annotations=IN_AN_HOUR)) == (f"annotation {INTERRUPT_AT}", 3600.0)
    assert deadline(node(SPOT, annotations=IN_AN_HOUR)) == (f"taint {SPOT.key}", 120.0)


@pytest.mark.parametrize("taints", [(SPOT, KARPENTER), (KARPENTER, SPOT)])
def test_a_deadline_counts_before_a_disruption_without_one(taints):
    assert deadline(node(*taints)) == (f"taint {SPOT.key}", 120.0)
    assert deadline(node(KARPENTER)) == (f"taint {KARPENTER.key}", None)


def test_a_sign_without_a_moment_counts_from_when_it_was_first_seen_and_only_itself():
    """A mark notes the deadline of the sign that it names: that of the hour is not that of the spot notice."""

    def mark(detail, at):
        return Mark(operator="", source="spot", reason="notice", step="Cordon", since=NOW, detail=detail, deadline=at)

    both = node(SPOT, annotations=IN_AN_HOUR)
    assert deadline(both, mark(f"taint {SPOT.key}", NOW + 120), NOW + 60) == (f"taint {SPOT.key}", 120.0)
    assert deadline(both, mark(f"annotation {INTERRUPT_AT}", NOW + 3600), NOW + 60) == (f"taint {SPOT.key}", 180.0)


def test_of_two_moments_the_earlier_one_counts_whatever_their_order():
    late, soon = ("vacant.io/maintenance", "2027-01-15T10:00:00Z"), (INTERRUPT_AT, "2027-01-15T08:30:00Z")
    detectors = (Detector(sign=Sign.ANNOTATION, key=late[0]), Detector(sign=Sign.ANNOTATION, key=soon[0]))
    for order in (detectors, detectors[::-1]):
        assert deadline(node(annotations=dict([late, soon])), detectors=order) == (f"annotation {INTERRUPT_AT}", 1800.0)
    assert all(one.kind is NoticeKind.INTERRUPTION for one in detectors)


def by_agent(kind, at="2027-01-15T08:02:00Z", what="AWS spot terminate"):
    notices = {"spot": {"kind": kind, "what": what, "at": at}}
    return {AGENT: json.dumps({"cloud": "aws", "checked": "2027-01-15T08:00:00Z", "notices": notices})}


def test_what_the_agent_read_is_an_interruption_with_its_moment():
    """M13: the notice that the agent brings counts as every other, at the moment that the cloud told."""
    assert deadline(node(annotations=by_agent("interrupt"))) == (f"AWS spot terminate, annotation {AGENT}", 120.0)
    assert [(d.sign, d.at) for d in departures(node(annotations=by_agent("interrupt")), DETECTORS)] == [
        (f"AWS spot terminate, annotation {AGENT}", NOW + 120.0)
    ]


def test_a_recommendation_has_no_deadline_and_counts_after_everything_else():
    """M13: a rebalance recommendation prepares, never cuts: it is no departure, and any other sign comes first."""
    recommended = by_agent("prepare", what="AWS rebalance recommendation")
    assert deadline(node(annotations=recommended)) == (f"AWS rebalance recommendation, annotation {AGENT}", None)
    assert deadline(node(KARPENTER, annotations=recommended)) == (f"taint {KARPENTER.key}", None)
    assert deadline(node(SPOT, annotations=recommended)) == (f"taint {SPOT.key}", 120.0)
    assert list(departures(node(annotations=recommended), DETECTORS)) == []


def test_a_required_reboot_is_for_people_and_empties_no_node():
    """M13: an update asks every node of the cluster for a reboot at once."""
    assert signals_of(node(annotations=by_agent("tell", what="a reboot is required")), DETECTORS, spot=True) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes",
        "[]",
        "{}",
        '{"notices":[]}',
        '{"notices":{"spot":{"kind":"interrupt","what":"x","at":"soon"}}}',
        "[" * 900,
    ],
)
def test_what_no_agent_wrote_under_its_key_empties_nothing_and_is_said(text):
    lying = node(annotations={AGENT: text})
    assert signals_of(lying, DETECTORS, spot=True) == []
    assert "which no agent of this release writes" in unread(lying, DETECTORS)
    assert unread(lying, DETECTORS[:1]) == ""


def test_the_end_of_a_nodeclaim_is_a_deadline():
    """M8: Karpenter's taint alone has none; its NodeClaim says when what is left is deleted by force."""
    assert deadline(node(KARPENTER, annotations={TERMINATES_AT: "2027-01-15T08:10:00Z"})) == (
        f"annotation {TERMINATES_AT}",
        600.0,
    )
