"""What must hold after every event, whatever happened. Tests switch it on; it walks everything, so a replica does not.

Limits are kept by promotions, what was taken is what will be released, one operator per subject, and the
world equals one built from a list.
"""

from mooring.core.engine.engine import Engine
from mooring.core.queue.audit import audit


def broken(engine: Engine) -> list[str]:
    """Every broken rule in words; empty when there is none."""
    found = list(audit(engine.queue))
    found += engine.world.check()
    claimed: dict[str, str] = {}
    for operator in engine.queue.operators():
        for claim in operator.claims:
            if claim in claimed:
                found.append(f"{claim} is claimed by op {claimed[claim]} and op {operator.id}")
            claimed[claim] = operator.id
    if not engine.deciding and (engine.running or engine.waiting):
        found.append("operators are queued although nothing is decided yet")
    return found
