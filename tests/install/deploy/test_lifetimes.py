"""How long operators waited and ran is measured from the story."""

from mooring.core.engine.history import HistoryEntry
from mooring.process.history_log import Lifetimes
from mooring.process.metrics import Metrics


def test_waiting_and_running_are_told_apart():
    """Queued → promoted is waiting, promoted → ended is running; one withdrawn while waiting never ran."""
    metrics = Metrics()
    lifetimes = Lifetimes(metrics)
    story = [("queued", "1", 0), ("queued", "2", 1), ("promoted", "1", 4), ("canceled", "2", 5), ("finished", "1", 34)]
    for verb, op, at in story:
        lifetimes.take(HistoryEntry(at=float(at), id=op, verb=verb, source="mix"))
    text = metrics.render().decode()
    assert 'mooring_operator_wait_seconds_sum{source="mix"} 4.0' in text
    assert 'mooring_operator_run_seconds_sum{source="mix"} 30.0' in text
    assert 'mooring_operator_run_seconds_count{source="mix"} 1.0' in text
