"""Every event by its name: what simulation, rehearsal, demo and tests let happen to a cluster."""

from typing import Final

from mooring_lab.events import faults, machines, people, workloads
from mooring_lab.events.context import Apply

CATALOGUE: Final[dict[str, Apply]] = {**workloads.EVENTS, **machines.EVENTS, **people.EVENTS, **faults.EVENTS}
