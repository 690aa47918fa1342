"""The load of a step on a store: the assumptions behind `compare` and `calibrate`, all in one place, all printed.

A store has a bandwidth for copying and a share of it that its own customers use. Steps load it while they last; the
latency its customers see grows as that of a queue, 1 / (1 - load): twice the load-free latency at half the capacity.
Nothing here was measured on a TiKV of yours. Change the numbers to what you measure; the questions stay the same.
"""

from collections.abc import Iterator

import msgspec

from mooring.core.model.operator import StepKind


class Load(msgspec.Struct, frozen=True, gc=False):
    """Share of a store's capacity that one step uses while it lasts."""

    sender: float = 0.0
    receiver: float = 0.0
    every_peer: float = 0.0


class Model(msgspec.Struct, frozen=True, kw_only=True):
    #: One snapshot is sent at most this quickly; several share a store's bandwidth.
    snapshot_mib_per_s: float = 50.0
    bandwidth_mib_per_s: float = 100.0
    #: Steps without data take so long.
    fast_step_s: float = 0.5
    merge_s: float = 3.0
    #: What customers use of each store before anything moves, drawn per store between these.
    busy_low: float = 0.3
    busy_high: float = 0.5
    #: While it lasts, as a share of the store: reading and sending a snapshot, writing and compacting one, and so on.
    copy: Load = Load(sender=0.06, receiver=0.10)
    transfer: Load = Load(sender=0.01, receiver=0.01)
    promote: Load = Load(receiver=0.01)
    remove: Load = Load(sender=0.03)
    reshape: Load = Load(every_peer=0.02)
    #: A store whose load reaches this is said to have that much: the formula has no answer beyond.
    saturated: float = 0.98
    #: Which of these were measured (`loads.py`); all others are assumed.
    measured: frozenset[str] = frozenset()

    def latency(self, load: float) -> float:
        """Times the latency of an idle store."""
        return 1.0 / (1.0 - min(load, self.saturated))

    def load_of(self, kind: StepKind) -> Load:
        match kind:
            case StepKind.ADD_LEARNER | StepKind.ADD_PEER:
                return self.copy
            case StepKind.TRANSFER_LEADER:
                return self.transfer
            case StepKind.PROMOTE_LEARNER:
                return self.promote
            case StepKind.REMOVE_PEER:
                return self.remove
            case _:
                return self.reshape

    def assumptions(self) -> Iterator[str]:
        """In words, each with where it is from, to be printed beside a result."""
        yield (
            f"{self._from('snapshot_mib_per_s')}: a snapshot is sent at {self.snapshot_mib_per_s:g} MiB/s at most; "
            f"{self._from('bandwidth_mib_per_s')}: a store copies {self.bandwidth_mib_per_s:g} MiB/s in all, each way"
        )
        yield f"{self._from('busy')}: customers use {self.busy_low:.0%} to {self.busy_high:.0%} of a store"
        yield ", ".join(
            (
                f"{self._from('copy')}: a snapshot loads its sender by {self.copy.sender:.1%}",
                f"its receiver by {self.copy.receiver:.1%}",
                f"{self._from('transfer')}: a leader's change by {self.transfer.receiver:.1%}",
                f"{self._from('promote')}: a promotion by {self.promote.receiver:.1%}",
                f"{self._from('remove')}: a removal by {self.remove.sender:.1%}",
                f"{self._from('reshape')}: a merge or split by {self.reshape.every_peer:.1%} on each peer",
            )
        )
        yield f"assumed: loads add up; latency is 1 / (1 - load) of an idle store's, capped at load {self.saturated:g}"
        yield (
            f"{self._from('fast_step_s')}: a step without data takes {self.fast_step_s:g} s, "
            f"{self._from('merge_s')}: a merge {self.merge_s:g} s; assumed: no step fails"
        )

    def _from(self, field: str) -> str:
        return "measured" if field in self.measured else "assumed"
