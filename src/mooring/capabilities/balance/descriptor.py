"""Balance, described to the rest of the product. It talks to PD only and needs no rights."""

from mooring.capabilities.balance.capability import Balance
from mooring.capabilities.balance.policy import BalancePolicy
from mooring.core.model.descriptor import Descriptor
from mooring.core.queue.config import REGION_SCHEDULERS

DESCRIPTOR = Descriptor(
    name="balance",
    former=("traffic",),
    sources=REGION_SCHEDULERS,
    policy=BalancePolicy,
    make=lambda config: Balance(config.policy(BalancePolicy)),
    asks=("pd",),
    request="a region move",
)
