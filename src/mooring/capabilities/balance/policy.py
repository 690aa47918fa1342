"""What an administrator may set about balancing. Sizes are MiB, times are seconds."""

from typing import Annotated, Final

import msgspec

from mooring.core.queue.config import REGION_SCHEDULERS

BALANCE_LEADER, BALANCE_REGION, REPLICA, MERGE, SPLIT, HOT = REGION_SCHEDULERS
#: The order of the schedulers: repairs first, then hot regions, then balance.
ORDER: Final = (REPLICA, HOT, BALANCE_LEADER, BALANCE_REGION, SPLIT, MERGE)

#: Less would read PD in a busy loop.
_Every = Annotated[float, msgspec.Meta(ge=0.1, le=31_536_000)]
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Some = Annotated[int, msgspec.Meta(ge=1)]
_Tolerance = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class BalancePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: Which TidbClusters are balanced, "<namespace>/<name>" with `*` for any, besides those annotated
    #: `mooring.dev/balance: "true"`. Of those that share a PD one is enough.
    clusters: tuple[str, ...] = ()
    #: Which schedulers propose. `replica`, `merge`, `split` and `hot` are PD's own unless named here: PD's cannot be
    #: paused, and two that merge would undo each other.
    sources: tuple[str, ...] = (BALANCE_LEADER, BALANCE_REGION)
    #: Voters per region where PD's rules are not known (in simulations); 0: as most regions have.
    replicas: _Count = 0
    #: Repairs go before balancing, like operators with a deadline: what is balanced meanwhile is soon uneven again.
    repairs_first: bool = True
    #: Two stores within this many leaders of each other are balanced.
    leader_tolerance: _Tolerance = 3.0
    #: Two stores within this many mean region sizes of each other are balanced.
    region_tolerance: _Tolerance = 3.0
    #: A region is merged below this size.
    merge_below_mib: _Count = 20
    #: A region is split above this size.
    split_above_mib: _Some = 288
    #: A store is hot when its leaders serve this many times the mean.
    hot_ratio: Annotated[float, msgspec.Meta(ge=1, le=1e9)] = 1.5
    #: A region is worth moving when it serves this much.
    hot_region_bytes: _Count = 1 << 20
    #: A store whose heartbeat is this much older than another's gets no region and no leader. (One comes every 10 s.)
    silent_after_s: _Every = 15.0
    #: Labels that keep replicas apart, the widest first: no move makes two replicas share more of them than before.
    location_labels: tuple[str, ...] = ("zone", "rack", "host")
    #: PD's own schedulers are paused for this long at a time (60 at most).
    pause_s: int = 60
    #: How often the pause is renewed.
    renew_s: _Every = 20.0
    #: How often the whole list of regions is read.
    regions_every_s: _Every = 60.0
    #: How often the regions are read at most, when PD's counts differ from Mooring's.
    regions_at_most_every_s: _Every = 5.0
    #: Regions of all clusters that are kept, at 800 bytes each. Beyond it the namespace with the most is no longer
    #: balanced.
    most_regions: _Some = 1_000_000
    #: How often PD is read while operators run.
    recheck_s: _Every = 1.0
    #: How often PD is read while no operator runs.
    idle_s: _Every = 15.0

    def __post_init__(self) -> None:
        odd = [name for name in self.clusters if name != "*" and name.count("/") != 1]
        if odd:
            raise ValueError(f'clusters names {odd[0]!r}: write "<namespace>/<name>", "<namespace>/*" or "*"')
        unknown = sorted(set(self.sources) - set(REGION_SCHEDULERS))
        if unknown:
            raise ValueError(f"sources names {', '.join(unknown)}: known are {', '.join(REGION_SCHEDULERS)}")
        if not 1 <= self.pause_s <= 60:
            raise ValueError("pause-s must be 1 to 60: PD must resume by itself soon after Mooring is gone")
        if self.merge_below_mib >= self.split_above_mib:
            raise ValueError(
                "merge-below-mib must be less than split-above-mib, or a region is merged and split in turn"
            )
        if not self.renew_s < self.pause_s:
            raise ValueError("renew-s must be less than pause-s, or PD resumes between two pauses")
