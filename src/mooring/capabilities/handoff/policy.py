"""What an administrator may set about handoff. Numbers are seconds."""

from typing import Annotated, Literal

import msgspec

from mooring.core.model.tidb import TidbCluster

#: A year stands for no limit; less than a tenth of a second would poll PD in a busy loop.
Every = Annotated[float, msgspec.Meta(ge=0.1, le=31_536_000)]
Span = Annotated[float, msgspec.Meta(ge=0, le=31_536_000)]


class HandoffPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: How often PD is asked while leaders leave (the design's 15 s).
    recheck_s: Every = 15.0
    #: How long zero leaders must last, seen from one PD that did not restart, before it counts as proof.
    prove_s: Span = 3.0
    #: How often PD is asked while nothing moves.
    idle_s: Every = 60.0
    #: After this the eviction is given up and the leaders may return (tidb-operator's evictLeaderTimeout).
    timeout_s: Every = 1500.0 * 60
    #: A store's figures are ignored when its heartbeat is older than this.
    heartbeat_s: Every = 60.0
    #: Answers of a PD that started, or took over, less than this ago are ignored: its stores may not have reported
    #: yet.
    young_pd_s: Span = 60.0
    #: After another store has started no pod is deleted for so long: TiKV's `raft-base-tick-interval` times `raft-max-
    #: election-timeout-ticks`. Raise it with those.
    election_s: Span = 20.0
    #: So many regions may be without a leader and a store still counts as proven empty; one always may, unless this is
    #: 0.
    leaderless_share: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.001
    #: How long the new pod must have been Ready before leaders may return.
    min_ready_s: Span = 0.0
    #: A restart waits until the log backup's checkpoint (`mooring.dev/log-backup-checkpoint`) is younger than this; 0:
    #: for none.
    log_backup_lag_s: Span = 0.0
    #: `evict-leader`, `pd-transfer-leader` and `tidb-graceful-shutdown`: true leaves them to tidb-operator, false acts
    #: on them, `auto` acts on what a tidb-operator has not begun within `yield-s`.
    leave_to_tidb_operator: bool | Literal["auto"] = "auto"
    #: How long tidb-operator has to begin, with `auto`.
    yield_s: Span = 10.0

    @property
    def leaves_all(self) -> bool:
        return self.leave_to_tidb_operator is True

    def yields(self, tc: TidbCluster) -> bool:
        """Whether a tidb-operator gets its time to begin. It always writes a phase; we never do."""
        return self.leave_to_tidb_operator == "auto" and bool(tc.tikv_phase or tc.pd_phase or tc.tidb_phase)
