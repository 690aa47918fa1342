"""The first line of page, top and `mooring why` is one sentence, true for what is going on (experience 6.1)."""

from types import SimpleNamespace

import pytest

from mooring.core.engine.standing import Standing
from mooring.core.model.decision import Verdict
from mooring.core.model.reasons import Reason, State
from mooring.process.http.frames import Trend
from mooring.process.http.verdict import Interrupted, causes, sentence

QUIET = {
    "silent_s": 0.0,
    "leader": "m-0",
    "needs": 0,
    "needs_words": "",
    "waiting_words": "",
    "running": 0,
    "waiting": 0,
}
NOTICE = Interrupted(nodes=12, pods=23, until=215.0)


@pytest.mark.parametrize(
    ("head", "interrupted", "expected"),
    [
        ({}, Interrupted(), "✓ Safe: no pending changes"),
        ({"running": 2}, Interrupted(), "✓ Safe: 2 moves under way"),
        ({"running": 1, "waiting": 3}, Interrupted(), "✓ Safe: 1 move under way; 3 waiting for their turn"),
        ({"waiting": 1, "waiting_words": "evicting/tidb/demo 1/1"}, Interrupted(), "… Waiting: 1 move, the first for evicting/tidb/demo 1/1"),
        ({}, NOTICE, "✓ Safe: 23 pods are leaving 12 interrupted nodes, 1:55 left"),
        ({}, Interrupted(nodes=1), "✓ Safe: 1 interrupted node, all empty"),
        ({"needs": 1, "needs_words": "pay-0 blocked: pdb/pay allows 0"}, NOTICE, "▲ Needs you: pay-0 blocked: pdb/pay allows 0"),
        ({"needs": 3, "needs_words": "pay-0 blocked"}, Interrupted(), "▲ Needs you: pay-0 blocked, and 2 more causes"),
        ({"leader": "", "needs": 1}, NOTICE, "? Unknown: no replica holds the lease, so nobody decides"),
        ({"silent_s": 65.0}, NOTICE, "? Unknown: the API server has not answered for 1:05; nothing new begins meanwhile"),
    ],
)  # fmt: skip
def test_one_sentence_says_how_the_cluster_is(head, interrupted, expected):
    """Blindness comes before what needs a person, that before what moves, that before what waits."""
    assert sentence(QUIET | head, interrupted, 100.0)["words"] == expected


def test_a_notice_that_has_passed_has_no_time_left():
    """An expired deadline is not printed as time that is left."""
    assert "left" not in sentence(QUIET, NOTICE, 300.0)["words"]


def test_forty_pods_behind_one_budget_are_one_cause():
    """NEEDS YOU counts what a person has to do, not how many objects wait for it."""

    def blocked(name: str, remedy: str) -> Standing:
        verdict = Verdict(subject=f"pod/{name}", state=State.BLOCKED, reason=Reason.PDB, detail="x", remedy=remedy)
        return Standing(name, State.BLOCKED, verdict)

    same = [blocked(f"pay-{n}", "kubectl -n pay edit pdb pay") for n in range(40)]
    assert causes(same) == 1
    assert causes([*same, blocked("web", "kubectl -n shop edit pdb web")]) == 2
    assert causes([Standing("op", State.WAITING, same[0].of)]) == 0


def tile(cls, cells):
    return SimpleNamespace(cls=cls, cells=cells)


def test_the_trend_counts_quarters_of_an_hour():
    """Moves that ended, the most that waited and was blocked, and the share of pods on spot nodes; midnight loses none."""
    trend = Trend()
    tiles = {"a": tile("spot", "xyz"), "b": tile("on-demand", "x")}
    day = 20_000 * 86_400.0
    for at, moved, waiting, needs in ((-1000.0, 40, 9, 1), (-950.0, 42, 3, 0), (-10.0, 45, 0, 0), (5.0, 2, 1, 0)):
        trend.take(day + at, {"moved": moved, "waiting": waiting, "needs": needs}, tiles)
    assert trend.told(day + 5.0) == {
        "moves": [2, 3, 2],
        "waiting": [9, 0, 1],
        "blocked": [1, 0, 0],
        "spot": [75, 75, 75],
    }


def test_the_trend_is_bounded_and_says_where_nothing_was_seen():
    trend = Trend()
    for quarter in (0, 1, 3, *range(10, 60)):
        trend.take(quarter * 900.0, {"moved": 0, "waiting": quarter, "needs": 0}, {})
    assert trend.told(59 * 900.0)["waiting"] == list(range(36, 60))
    gap = Trend()
    for quarter in (0, 2):
        gap.take(quarter * 900.0, {"moved": 0, "waiting": 5, "needs": 0}, {})
    assert gap.told(2 * 900.0)["waiting"] == [5, None, 5]
