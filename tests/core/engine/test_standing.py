"""O3: one state for an object, wherever it is asked for; what the queue will never take is `refused` everywhere."""

import pytest

from mooring.capabilities.handoff.descriptor import report_of
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.engine.events import QueueSettingsChanged
from mooring.core.engine.schedule import FREE_TOGETHER, Repetitions
from mooring.core.engine.standing import needs_you
from mooring.core.engine.why import explain
from mooring.core.model.events import PdSeen
from mooring.core.model.instructions import EmitEvent
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import live_settings
from mooring.core.queue.config import parse
from mooring.process.http.queuerows import queue_rows
from mooring.process.metrics import Metrics
from mooring.process.settings.config import Config
from tests.core.engine.engine_by_hand import CLUSTER, Hand, of, view


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"MaxScheduleCost": 3}, Reason.NEVER_FITS),
        ({"StoreMaxScheduleCost": {"tidb/demo/1": 0}}, Reason.STORE_PAUSED),
        ({"SchedulerMaxWaitingOperator": {"handoff": 0}}, Reason.TOO_MANY_WAITING),
    ],
)
def test_what_the_queue_never_takes_is_refused_everywhere(settings, reason):
    """O3 and issue 35: `handoff status` said `stable`, no Event was written and `mooring_needs_you` was 0."""
    hand = Hand()
    hand.engine.queue.configure(parse(settings, live_settings()))
    hand.lead()
    asked = hand.annotate(0)
    answer = explain(hand.engine, "pod/tidb/demo-tikv-0")
    (member,) = (
        row
        for cluster in report_of(hand.engine, Config(policies=(HandoffPolicy(),)))["clusters"]
        for row in cluster["members"]
        if row["pod"] == "demo-tikv-0"
    )
    metrics = Metrics()
    metrics.look_at(hand.engine, 0)
    assert (answer.state, answer.reason) == (State.REFUSED, reason)
    assert (member["state"], member["reason"]) == (State.REFUSED, reason)
    assert [one.state for one in needs_you(hand.engine)] == [State.REFUSED]
    assert [row.state for row in queue_rows(hand.engine)] == [State.REFUSED]
    assert b"mooring_needs_you 1.0" in metrics.render()
    (event,) = of(EmitEvent, asked)
    assert event.warning and event.reason is reason
    # Said once, not at every look; and over when the settings allow it.
    assert not of(EmitEvent, hand.feed(PdSeen(CLUSTER, view(), hand.now)))
    hand.feed(QueueSettingsChanged(live_settings()))
    assert not needs_you(hand.engine) and hand.engine.running


def test_a_source_whose_moves_are_all_refused_backs_off_together():
    """Issue 35: a PD that refuses every move was asked for the next region at once, for ever."""

    def move(region):
        return Operator(id="", source="balance-leader", kind="region", subject=f"region/a/{region}", quota="a")

    repetitions = Repetitions()
    for region in range(FREE_TOGETHER + 1):
        assert repetitions.back_off_until(move(region), 100.0) is None
        repetitions.ended(move(region), 100.0, acted=False, failed=True)
    assert repetitions.back_off_until(move(99), 100.0) == 160.0
    repetitions.ended(move(99), 161.0, acted=True)
    assert repetitions.back_off_until(move(100), 100.0) is None
