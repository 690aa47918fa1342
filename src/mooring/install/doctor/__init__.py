"""`mooring doctor`: does the cluster have what Mooring needs, and does Mooring work in it?

    findings = await examine(DoctorTarget(...), pre=False)

Each check looks at one thing and answers with findings: what was seen, the command that fixes it, a stable code. It
goes on after a failure; what cannot be looked at because of an earlier failure is said to be skipped.
"""

from mooring.core.model.finding import Finding, Level
from mooring.install.doctor.codes import codes, meaning, see
from mooring.install.doctor.examine import DoctorTarget, examine

__all__ = ["DoctorTarget", "Finding", "Level", "codes", "examine", "meaning", "see"]
