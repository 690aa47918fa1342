"""PD's operators: steps carried out one after another by the region's leader, with an end that has a name.

    CREATED → RUNNING → SUCCESS | TIMEOUT | CANCEL | REPLACE

A step is a command to TiKV; once sent it takes effect even if PD forgets the operator meanwhile (a restart). A step
that cannot be done now (its target is away) is sent again until the operator's time is over.
"""

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from mooring.core.model.tidb import PdOperator
from mooring_lab.cluster.clock import Timeline, Timer
from mooring_lab.cluster.pd.settings import PdSettings
from mooring_lab.cluster.pd.tikv import RaftGroup, Tikv
from mooring_lab.cluster.randomness import SeededRandomness

#: A step that could not be done is sent again this often.
RESEND_S = 5.0


class PdStep(msgspec.Struct, frozen=True):
    #: transfer-leader, add-learner, promote-learner, enter-joint, leave-joint, remove-peer, merge, split.
    kind: str
    text: str
    store: int = 0
    #: Of a joint step: the store whose voter becomes a learner.
    demoted: int = 0
    peer_id: int = 0
    other_region: int = 0
    keys: tuple[str, ...] = ()


class StoredOperator:
    def __init__(
        self, desc: str, brief: str, group: RaftGroup, kinds: tuple[str, ...], steps: tuple[PdStep, ...]
    ) -> None:
        self.desc = desc
        self.brief = brief
        self.region_id = group.id
        self.epoch = (group.version, group.conf_ver)
        self.size_mib = group.size_mib
        self.kinds = kinds
        self.steps = steps
        self.current = 0
        self.status = "RUNNING"
        self.created_at = 0.0
        self.created_mono = 0.0
        self.ended_mono = 0.0
        self.timers: list[Timer] = []

    @property
    def counts_as(self) -> str:
        """The one limit it counts against: admin, else the first of its kinds."""
        return self.kinds[0]

    @property
    def timeout_s(self) -> int:
        slow, fast = max(600, 6 * self.size_mib), max(60, int(0.6 * self.size_mib))
        of = {"add-learner": slow, "merge": 10 * fast, "enter-joint": 3 * fast, "leave-joint": 3 * fast}
        return sum(of.get(s.kind, fast) for s in self.steps)

    def view(self) -> PdOperator:
        return PdOperator(self.region_id, self.desc, self.brief, self.status, tuple(s.text for s in self.steps))

    def line(self) -> str:
        """As PD prints it."""
        at = datetime.fromtimestamp(self.created_at, UTC).strftime("%Y-%m-%d %H:%M:%S.%f") + "000 +0000 UTC"
        at += f" m=+{self.created_mono:.9f}"
        steps = ", ".join(f"{i}:{{{s.text}}}" for i, s in enumerate(self.steps))
        end = {"SUCCESS": " finished", "TIMEOUT": " timeout"}.get(self.status, "")
        version, conf_ver = self.epoch
        kinds = ",".join(self.kinds)
        return (
            f"{self.desc} {{{self.brief}}} (kind:{kinds}, region:{self.region_id}({version}, {conf_ver}), "
            f"createAt:{at}, startAt:{at}, currentStep:{self.current}, size:{self.size_mib}, steps:[{steps}], "
            f"timeout:[{go_duration(self.timeout_s)}]){end}"
        )


def go_duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


class Operators:
    """What runs, by region, and what ended lately."""

    def __init__(self, timeline: Timeline, randomness: SeededRandomness, settings: PdSettings, tikv: Tikv) -> None:
        self._timeline = timeline
        self._randomness = randomness
        self._settings = settings
        self._tikv = tikv
        self.running: dict[int, StoredOperator] = {}
        self._ended: dict[int, StoredOperator] = {}
        self.on_end: Callable[[StoredOperator], None] = lambda _: None
        #: A region's leader reports that a step is done; only then PD goes on.
        self.on_heard: Callable[[int], None] = lambda _: None

    def count(self, kind: str) -> int:
        return sum(1 for op in self.running.values() if op.counts_as == kind)

    def start(self, op: StoredOperator) -> bool:
        """False: the region has one already (an admin's replaces a scheduler's)."""
        busy = self.running.get(op.region_id)
        if busy is not None:
            if op.counts_as != "admin" or busy.counts_as == "admin" or "evict" in busy.desc:
                return False
            self._end(busy, "REPLACE")
        op.created_at, op.created_mono = self._timeline.now(), self._timeline.monotonic()
        self.running[op.region_id] = op
        op.timers.append(self._timeline.after(op.timeout_s, lambda: self._end(op, "TIMEOUT")))
        self._send(op)
        return True

    def cancel(self, region_id: int) -> bool:
        op = self.running.get(region_id)
        if op is None:
            return False
        self._end(op, "CANCEL")
        return True

    def find(self, region_id: int) -> StoredOperator | None:
        op = self.running.get(region_id)
        if op is None:
            op = self._ended.get(region_id)
            if op is not None and self._timeline.monotonic() - op.ended_mono > self._settings.record_ttl_s:
                del self._ended[region_id]
                op = None
        return op

    def records(self) -> list[StoredOperator]:
        return [op for r in sorted(self._ended) if (op := self.find(r)) is not None and op.status != "RUNNING"]

    def forget_all(self) -> None:
        """PD's memory is gone; what TiKV was told, it still does."""
        for op in self.running.values():
            op.status = "CANCEL"
            op.timers[0].cancel()
        self.running.clear()
        self._ended.clear()

    def _send(self, op: StoredOperator) -> None:
        step = op.steps[op.current]
        op.timers.append(self._timeline.after(self._duration_s(op, step), lambda: self._arrive(op, step)))

    def _duration_s(self, op: StoredOperator, step: PdStep) -> float:
        if step.kind == "transfer-leader":
            return self._randomness.uniform(*self._settings.transfer_s)
        copy = op.size_mib / self._settings.snapshot_mib_per_s if step.kind == "add-learner" else 0.0
        return copy + self._randomness.uniform(*self._settings.conf_change_s)

    def _arrive(self, op: StoredOperator, step: PdStep) -> None:
        group = self._tikv.groups.get(op.region_id)
        if group is None:
            if op.status == "RUNNING":
                self._end(op, "CANCEL")
            return
        done = carry_out(self._tikv, group, step)
        if op.status != "RUNNING":
            return
        if not done:
            op.timers.append(self._timeline.after(RESEND_S, lambda: self._resend(op, step)))
            return
        op.timers.append(
            self._timeline.after(self._randomness.uniform(*self._settings.report_s), lambda: self._heard(op))
        )

    def _heard(self, op: StoredOperator) -> None:
        if op.status != "RUNNING":
            return
        self.on_heard(op.region_id)
        op.current += 1
        if op.current == len(op.steps):
            self._end(op, "SUCCESS")
        else:
            self._send(op)

    def _resend(self, op: StoredOperator, step: PdStep) -> None:
        if op.status == "RUNNING":
            self._arrive(op, step)

    def _end(self, op: StoredOperator, status: str) -> None:
        if op.status != "RUNNING":
            return
        op.status = status
        op.ended_mono = self._timeline.monotonic()
        op.timers[0].cancel()
        if self.running.get(op.region_id) is op:
            del self.running[op.region_id]
        self._ended[op.region_id] = op
        self.on_end(op)


def carry_out(tikv: Tikv, group: RaftGroup, step: PdStep) -> bool:
    match step.kind:
        case "transfer-leader":
            return tikv.transfer(group, step.store)
        case "add-learner":
            return tikv.add_learner(group, step.store, step.peer_id)
        case "promote-learner":
            return tikv.promote(group, step.store)
        case "enter-joint":
            return tikv.enter_joint(group, step.store, step.demoted)
        case "leave-joint":
            return tikv.leave_joint(group)
        case "remove-peer":
            return tikv.remove_peer(group, step.store)
        case "split":
            return tikv.split(group, step.keys)
        case "merge":
            return tikv.merge(group, step.other_region)
    raise ValueError(f"no such step: {step.kind}")
