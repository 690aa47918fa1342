"""A placement driver with TiKV stores, regions and leaders, on the sandbox's time."""

from mooring_lab.cluster.pd.driver import SandboxPd
from mooring_lab.cluster.pd.settings import PdSettings
from mooring_lab.cluster.pd.tikv import LeadersCut

__all__ = ["LeadersCut", "PdSettings", "SandboxPd"]
