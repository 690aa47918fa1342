"""A machine registry in the sandbox: sabakan's machines, rules and words."""

from mooring.sandbox.sabakan.registry import Forbidden, SandboxSabakan

__all__ = ["Forbidden", "SandboxSabakan"]
