"""A TiKV cluster in figures, on virtual time: to compare ways of letting moves pass, and to ask what a step may cost.

Much coarser than the sandbox (no PD, no raft, half a second at a time), and therefore quick enough for a thousand
stores. The schedulers and the queue are the real ones.
"""

from mooring.sim.regions.model import Model
from mooring.sim.regions.play import Figures, play
from mooring.sim.regions.scenarios import SCENARIOS
from mooring.sim.regions.schemes import Limits, LimitScheme, QueueScheme

__all__ = ["SCENARIOS", "Figures", "LimitScheme", "Limits", "Model", "QueueScheme", "play"]
