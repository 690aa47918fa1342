"""A placement driver with TiKV stores, regions and leaders, on the sandbox's time."""

from mooring.sandbox.pd.driver import SandboxPd
from mooring.sandbox.pd.settings import PdSettings
from mooring.sandbox.pd.tikv import LeadersCut

__all__ = ["LeadersCut", "PdSettings", "SandboxPd"]
