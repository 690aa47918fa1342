"""Systems with leaders in a StatefulSet (etcd, PostgreSQL under Patroni, any other behind a hook), by their own word.

A StatefulSet opts in by the annotation `mooring.dev/leaders`, which names a driver (`clients/leaders`). The driver asks
the system; what it answers is one `LeaderView`, alike for all systems. Members are named by their pods.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from mooring.core.model.cluster import Workload
from mooring.core.model.kinds import Kind

#: On a StatefulSet: the driver, where its members answer (comma-separated, `{pod}` is the pod's name; several are in
#: the order of the ordinals), and the Secret with `ca.crt`, `tls.crt`, `tls.key`.
LEADERS: Final = "mooring.dev/leaders"
LEADERS_ENDPOINT: Final = "mooring.dev/leaders-endpoint"
LEADERS_SECRET: Final = "mooring.dev/leaders-secret"  # noqa: S105
#: The names of the drivers.
DRIVERS: Final = ("etcd", "patroni", "hook")


class LeaderMember(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One member, by the system's own word."""

    #: The name of its pod.
    pod: str
    #: How much it leads; of a system with one leader 1 or 0.
    leaders: int = 0
    healthy: bool = False
    #: It has what the leader has, but for a bounded lag.
    in_sync: bool = False
    #: Leadership may be given to it.
    may_lead: bool = True
    #: It may stop now, once it leads nothing.
    may_go: bool = True
    #: What is wrong, in words.
    detail: str = ""

    @property
    def is_well(self) -> bool:
        return self.healthy and self.in_sync


class LeaderView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One look at a system."""

    #: Which life of which system this is: it changes with every election, so that two looks can be told apart from one.
    life: str = ""
    members: tuple[LeaderMember, ...] = ()
    #: How many well members have to stay, whoever goes.
    needs: int = 1
    #: Why nobody should go just now: it is paused, or changes its leader.
    busy: str = ""

    def member(self, pod: str) -> LeaderMember | None:
        return next((m for m in self.members if m.pod == pod), None)

    def others(self, pod: str) -> Sequence[LeaderMember]:
        """The well members that could lead, and stay when this one goes."""
        return [m for m in self.members if m.pod != pod and m.is_well and m.may_lead]

    @property
    def leader(self) -> str:
        """For people: who leads, and how much where that is not one thing."""
        found = [m for m in self.members if m.leaders]
        return ", ".join(m.pod if m.leaders == 1 else f"{m.pod} ({m.leaders})" for m in found) or "nobody"


def driver_of(workload: Workload | None) -> str:
    """The driver that a StatefulSet names; "": none. Members of a TidbCluster are handed over as such."""
    if workload is None or workload.kind != Kind.STATEFUL_SET:
        return ""
    if workload.owner is not None and workload.owner.kind == Kind.TIDB_CLUSTER:
        return ""
    return workload.annotations.get(LEADERS, "").strip()
