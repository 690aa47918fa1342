"""Balance: schedulers that decide where regions and their leaders belong, and drive a PD.

`Balance` is the capability; `Summary`, `Influence`, `Picture` and `propose` are for code that asks the schedulers
about a cluster of their own (the comparison in `bench/regions`).
"""

from mooring.capabilities.balance.capability import Balance
from mooring.capabilities.balance.picture import Influence, Picture, Proposal
from mooring.capabilities.balance.policy import BalancePolicy
from mooring.capabilities.balance.schedulers import SCHEDULERS, operator_of, propose, propose_all
from mooring.capabilities.balance.summary import Summary

__all__ = [
    "SCHEDULERS",
    "Balance",
    "BalancePolicy",
    "Influence",
    "Picture",
    "Proposal",
    "Summary",
    "operator_of",
    "propose",
    "propose_all",
]
