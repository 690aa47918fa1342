"""What an administrator may set about fleet in the configuration file. Numbers are seconds.

What changes from day to day (template, constraints, variables, URL) is not here but in a ConfigMap: see `settings`.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mooring.capabilities.fleet.planner.plan import WhenShort

#: Intervals of polling; a smaller one would be a busy loop.
_Pause = Annotated[float, Meta(ge=0.1, le=1e9)]
_Wait = Annotated[float, Meta(ge=0, le=1e9)]


class FleetPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: How often the registry is asked (the design's minute).
    query_s: _Pause = 60.0
    #: How long a worker stays RETIRED before it leaves the cluster.
    wait_retired_s: _Wait = 300.0
    #: When the constraints cannot be met: `fail` does nothing (the design), `proceed` does what can be done.
    when_short: WhenShort = WhenShort.FAIL
    #: `gentle`: empty the node, then NoExecute; when `retire-timeout-s` is over, what is left is evicted as far as
    #: PodDisruptionBudgets allow, then NoExecute. `hold`: when it is over, give the place up, keep the cordon, try
    #: again later. `immediate`: NoExecute first.
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
    #: Pods with emptyDir data that a controller recreates: `evict` one by one like the others, or `hold` for a person.
    gentle_empty_dir: Literal["evict", "hold"] = "evict"
    #: Evict pods without a controller.
    evict_bare_pods: bool = False
    #: Revisions of the cluster that the history keeps.
    history: Annotated[int, Meta(ge=1, le=500)] = 50
