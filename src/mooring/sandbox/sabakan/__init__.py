"""A machine registry in the sandbox: sabakan's machines, rules and words."""

from mooring.sandbox.sabakan.registry import ForbiddenError, SandboxSabakan

__all__ = ["ForbiddenError", "SandboxSabakan"]
