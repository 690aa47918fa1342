"""A machine registry in the sandbox: sabakan's machines, rules and words."""

from mooring_lab.cluster.sabakan.registry import ForbiddenError, SandboxSabakan

__all__ = ["ForbiddenError", "SandboxSabakan"]
