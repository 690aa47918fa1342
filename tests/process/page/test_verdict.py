"""The first line of page, top and `mooring why` is one sentence, true for what is going on (experience 6.1)."""

import pytest

from mooring.core.engine.standing import Standing
from mooring.core.model.decision import Verdict
from mooring.core.model.reasons import Reason, State
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
