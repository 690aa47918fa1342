"""What an administrator may set about fleet in the configuration file. Numbers are seconds.

What changes from day to day (template, constraints, variables, URL) is not here but in a ConfigMap: see `settings`.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mooring.capabilities.fleet.live.export import ExportPolicy
from mooring.capabilities.fleet.planner.plan import WhenShort

#: Intervals of polling; a smaller one would be a busy loop.
_Pause = Annotated[float, Meta(ge=0.1, le=1e9)]
_Wait = Annotated[float, Meta(ge=0, le=1e9)]


_Most = Annotated[int, Meta(ge=0, le=1000)]


class RepairPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: Run by the leader for a machine that the registry calls unhealthy, once, without a shell; `{address}`,
    #: `{serial}`, `{rack}` and `{role}` are replaced. None: nothing is repaired.
    command: tuple[str, ...] = ()
    #: In which states of the registry a machine is repaired.
    states: tuple[Literal["unhealthy", "unreachable"], ...] = ("unhealthy",)
    #: How long it has to be in that state.
    after_s: Annotated[float, Meta(ge=0, le=1e9)] = 600.0
    #: How many may be under repair at once: in all, of one rack, and of one role (0: no limit of its own).
    at_most: Annotated[int, Meta(ge=1, le=1000)] = 1
    at_most_per_rack: _Most = 1
    at_most_per_role: _Most = 0
    #: How long the command may take, and until when the machine has to be healthy after it.
    timeout_s: Annotated[float, Meta(ge=1, le=86_400)] = 600.0
    back_within_s: Annotated[float, Meta(ge=1, le=1e9)] = 3600.0

    @property
    def on(self) -> bool:
        return bool(self.command)


class FleetPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: How often the registry is asked (the design's minute).
    query_s: _Pause = 60.0
    #: How long a worker stays RETIRED before it leaves the cluster. Only with variables that list RETIRED machines;
    #: hidden ones count as gone.
    wait_retired_s: _Wait = 300.0
    #: When the constraints cannot be met: `fail` does nothing (the design), `proceed` does what can be done.
    when_short: WhenShort = WhenShort.FAIL
    #: `gentle`: empty the node, at the time-out evict the rest as budgets allow, then NoExecute. `hold`: at the time-
    #: out give up, keep the cordon, try again later. `immediate`: NoExecute first.
    retire: Literal["gentle", "hold", "immediate"] = "gentle"
    #: How long a node may take to become empty, counted from the first cordon.
    retire_timeout_s: _Wait = 3600.0
    #: A retirement from which no pod has left for so long gives its place up, keeps the cordon and tries again later.
    retire_patience_s: _Wait = 600.0
    #: How long until a retirement that was given up is tried again; doubled each time, at most a day.
    retire_hold_s: _Pause = 600.0
    #: How often a node that is being emptied is looked at when nothing else happens.
    recheck_s: _Pause = 5.0
    #: A change that has not settled by then no longer delays the next one.
    settle_timeout_s: _Wait = 1800.0
    #: A replaced control plane that is healthy again within so long was flapping: the next one must be broken for so
    #: long, doubled each time. 0: no back-off.
    replace_backoff_s: _Wait = 600.0
    #: Pods with emptyDir data that a controller recreates: `evict` one by one like the others, or `hold` for a person.
    gentle_empty_dir: Literal["evict", "hold"] = "evict"
    #: Evict pods without a controller.
    evict_bare_pods: bool = False
    #: Delete the Node of a machine that left the cluster, once it was not Ready for `delete-nodes-after-s` and holds
    #: no pod but DaemonSets'. Needs a right that no manifest gives.
    delete_nodes: bool = False
    delete_nodes_after_s: Annotated[float, Meta(ge=60, le=1e9)] = 3600.0
    export: ExportPolicy = ExportPolicy()
    repair: RepairPolicy = RepairPolicy()
    #: Revisions of the cluster that the history keeps.
    history: Annotated[int, Meta(ge=1, le=500)] = 50
