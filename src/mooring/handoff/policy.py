"""What an administrator may set about handoff. Numbers are seconds."""

import msgspec


class HandoffPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    #: How often PD is asked while leaders leave (the design's 15 s).
    recheck_s: float = 15.0
    #: How long zero must last, seen from one PD that did not restart, before it counts as proof.
    prove_s: float = 3.0
    #: How often PD is asked while nothing moves.
    idle_s: float = 60.0
    #: After this the eviction is given up and the leaders may return (tidb-operator's evictLeaderTimeout).
    timeout_s: float = 1500.0 * 60
    #: A heartbeat older than this says nothing about a store.
    heartbeat_s: float = 60.0
    #: A PD that started less than this ago is not believed to know its leaders.
    young_pd_s: float = 60.0
    #: How long the new pod must have been Ready before leaders may return.
    min_ready_s: float = 0.0
    #: Leave the annotations that tidb-operator itself acts on to it, and count what it does as a fact.
    leave_to_tidb_operator: bool = False
