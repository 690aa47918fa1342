"""The queue as rows, as the page orders them: what needs a person, then what runs, then what waits, in its order."""

from mooring.engine.engine import Engine
from mooring.serve.pagerows import QueueRow, running_row, verdict_row, waiting_row
from mooring.traffic.why import why_all

_ORDER = {"held": 0, "refused": 1, "runs": 2}


def queue_rows(engine: Engine) -> list[QueueRow]:
    rows = [
        verdict_row(capability, key, verdict)
        for (capability, key), verdict in sorted(engine.verdicts.items())
        if verdict.state in {"held", "refused"}
    ]
    rows += [running_row(running) for running in engine.running.values()]
    why = why_all(engine.queue)
    for operator_id in engine.queue.waiting:
        operator = engine.waiting.get(operator_id)
        if operator is not None:
            queued = next((e.at for e in engine.story.of(f"operator/{operator_id}") if e.verb == "queued"), None)
            rows.append(waiting_row(operator, why.get(operator_id), queued))
    return sorted(rows, key=lambda row: _ORDER.get(row.state, 3))
