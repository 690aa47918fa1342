"""A TiKV cluster in figures, on virtual time: to compare ways of letting moves pass, and to ask what a step may cost.

Much coarser than the sandbox (no PD, no raft, half a second at a time), and therefore quick enough for a thousand
stores. The schedulers and the queue are the real ones.
"""

from bench.regions.model import Model
from bench.regions.play import Figures, play
from bench.regions.scenarios import SCENARIOS
from bench.regions.schemes import Limits, LimitScheme, QueueScheme

__all__ = ["SCENARIOS", "Figures", "LimitScheme", "Limits", "Model", "QueueScheme", "play"]
