"""Balance, described to the rest of the product. It talks to PD only and needs no rights."""

from mooring.capabilities.balance.capability import Balance
from mooring.core.model.descriptor import Descriptor
from mooring.core.queue.config import REGION_SCHEDULERS

DESCRIPTOR = Descriptor(
    name="balance",
    sources=REGION_SCHEDULERS,
    make=lambda config: Balance(config.balance),
    asks=("pd",),
    request="a region move",
)
