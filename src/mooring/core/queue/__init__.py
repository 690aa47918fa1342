"""The queue: moves wait in one queue and pass by cost.

    from mooring.core.queue import Queue, live_settings

    queue = Queue(live_settings(), now)
    queue.tick(now)                      # first, at every turn: what is due ends; returns events like every call
    queue.submit(op)                     # -> [Accepted, Promoted …] or [Rejected(reason, detail)]
    queue.submit_batch(ops)              # each its own result, then one pass
    queue.resume(op, phase)              # a mark says it runs: running at once, without a check of room
    queue.advance(id, phase)             # its cost falls to phases[phase], running or still waiting
    queue.finish(id) / fail(id, reason, detail) / cancel(id, reason, detail)
    queue.set_fact(target, subject, amount, text) / clear_fact(target, subject)
    queue.set_limit(target, n | None) / reset_limit(target)
    queue.configure(settings)

Looking: `running`, `waiting` (ids, in order), `get(id)`, `is_running(id)`, `phase(id)`,
`holder(claim)`, `used(target)`, `limit(target)`, `facts(target)`, `holders(target)`,
`waiting_of(source)`, `next_due()`, and `records` with all there is about each
operator; `why(queue, id)` and `why_all(queue)` say what a waiting operator waits for.

Every call answers with a list of events in order (`Accepted`, `Rejected`, `Promoted`, `Advanced`, `Ended`, `Ignored`)
and never raises for what a proposer did wrong. One thread; the work per call is the number of operators whose standing
changes. Region operators are priced by `region_operator(…)`; a claim is held by one operator at a time, waiting or
running: `region-busy` for claims `region/…`, `subject-busy` for others.
"""

from mooring.core.model.decision import Fact
from mooring.core.queue.config import QueueConfigError, Settings, live_settings
from mooring.core.queue.costs import BadStepsError, RegionMove, price, region_claims, region_operator
from mooring.core.queue.events import Accepted, Advanced, Ended, Event, How, Ignored, Promoted, Rejected
from mooring.core.queue.queue import Queue
from mooring.core.queue.read import QueueRead
from mooring.core.queue.targets import store_target
from mooring.core.queue.why import Why, why, why_all

__all__ = [
    "Accepted",
    "Advanced",
    "BadStepsError",
    "Ended",
    "Event",
    "Fact",
    "How",
    "Ignored",
    "Promoted",
    "Queue",
    "QueueConfigError",
    "QueueRead",
    "RegionMove",
    "Rejected",
    "Settings",
    "Why",
    "live_settings",
    "price",
    "region_claims",
    "region_operator",
    "store_target",
    "why",
    "why_all",
]
