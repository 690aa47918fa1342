"""A recorded stream of events in, what the queue made of it out: one JSON object a line.

The rules that make the output exact: for each line, operators whose time-out is due end first, then one pass, then the
line's own action, then one pass. A line that makes no sense is `ignored` with a reason, changes nothing, and the replay
goes on.
"""

from collections.abc import Callable, Iterator, Mapping
from math import inf, isfinite
from typing import Any, Final, cast

import msgspec

from mooring.core.model.operator import Operator, Step, StepKind
from mooring.core.model.reasons import Reason
from mooring.core.queue import config, targets
from mooring.core.queue.config import QueueConfigError, Settings
from mooring.core.queue.costs import BadStepsError, RegionMove, region_operator
from mooring.core.queue.events import Accepted, Advanced, Ended, Event, Ignored, Promoted, Rejected
from mooring.core.queue.queue import Queue
from mooring.core.queue.why import Why, why_all

Json = dict[str, Any]

#: Ends whose reason only repeats the event's name are printed without one.
_PLAIN_ENDS: Final = frozenset({Reason.DONE, Reason.FAILED, Reason.CANCELED, Reason.TIMEOUT})
#: Ids of PD are unsigned 64-bit numbers.
_IDS_END: Final = 1 << 64
#: No wait is longer, and sums of such times are still exact to the millisecond.
_TIMES_END: Final = 1e12
_KINDS: Final = {kind.value: kind for kind in config.ROLES}


class BadLineError(ValueError):
    """A line or an operator in it that cannot be read; the message says what would be right."""


class QueueReplay:
    """Feed it lines, get lines. `remark` is told, in words, what was wrong with those it ignored."""

    def __init__(self, settings: Settings | None = None, remark: Callable[[str], None] = lambda _: None) -> None:
        self.queue = Queue(settings, now=-inf)
        self._remark = remark
        #: Lines that were no event at all.
        self.unread = 0

    def line(self, raw: bytes | str) -> list[Json]:
        """What one line of input leads to. A blank line is nothing."""
        if not raw.strip():
            return []
        try:
            at, record = _read(raw)
        except BadLineError as error:
            self._remark(str(error))
            self.unread += 1
            last = self.queue.now
            return [{"at": last if isfinite(last) else 0.0, "event": "ignored", "reason": Reason.INVALID.value}]
        if at < self.queue.now:
            self._remark(f"at {at} is before {self.queue.now}: lines must be in time order")
            return [_ignored(at, record, Reason.TIME)]
        out = [_print(at, event) for event in self.queue.tick(at)]
        try:
            out.extend(self._act(at, record))
        except (BadLineError, QueueConfigError) as error:
            self._remark(str(error))
            out.append(_ignored(at, record, Reason.INVALID))
        return out

    def _act(self, at: float, record: Json) -> Iterator[Json]:
        queue = self.queue
        events: list[Event]
        match record.get("do"):
            case "submit":
                return self._submit(at, [_object(record.get("operator"), "operator")])
            case "submit-batch":
                operators = record.get("operators")
                if not isinstance(operators, list):
                    raise BadLineError("submit-batch needs `operators`, a list")
                return self._submit(at, operators)
            case "finish":
                events = queue.finish(_id(record))
            case "fail":
                events = queue.fail(_id(record))
            case "cancel":
                events = queue.cancel(_id(record))
            case "configure":
                events = queue.configure(config.parse(record.get("config"), queue.settings))
            case "tick":
                events = []
            case "state":
                return iter([self._state(at)])
            case other:
                known = "submit, submit-batch, finish, fail, cancel, configure, tick, state"
                raise BadLineError(f"`do` is {other!r}: it must be one of {known}")
        return (_print(at, event) for event in events)

    def _submit(self, at: float, raws: list[Any]) -> Iterator[Json]:
        """Every operator gets its own result, in order; those that can be read are queued, then one pass."""
        read: list[Operator] = []
        unread: list[tuple[int, Json]] = []
        for number, raw in enumerate(raws):
            try:
                read.append(_operator(raw, self.queue.settings))
            except (BadLineError, BadStepsError) as error:
                self._remark(f"operator {_name(raw)!r}: {error}")
                rejected = {"at": at, "event": "rejected", "id": _name(raw), "reason": Reason.INVALID.value}
                unread.append((number, rejected))
        out = [_print(at, event) for event in self.queue.submit_batch(read)]
        # The first events are one result per operator that was read: slip the unread ones in at their places.
        for number, rejected in unread:
            out.insert(number, rejected)
        return iter(out)

    def _state(self, at: float) -> Json:
        queue = self.queue
        used = {target: queue.used(target) for target in sorted(queue.lanes, key=targets.order) if queue.used(target)}
        return {
            "at": at,
            "event": "state",
            "running": list(queue.running),
            "waiting": list(queue.waiting),
            "cost": used,
            "why": {name: _print_why(answer) for name, answer in why_all(queue).items()},
        }


def _read(raw: bytes | str) -> tuple[float, Json]:
    try:
        record = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLineError(f"not a JSON object: {error}") from error
    if not isinstance(record, dict):
        raise BadLineError("a line must be a JSON object")
    at = record.get("at")
    if not _is_number(at):
        raise BadLineError("`at` must be a number of seconds")
    return cast("float", at), record


def _operator(raw: Any, settings: Settings) -> Operator:
    raw = _object(raw, "an operator")
    name, scheduler = raw.get("id"), raw.get("scheduler")
    if not isinstance(name, str) or not name:
        raise BadLineError("`id` must be a string that is not empty")
    if not isinstance(scheduler, str) or not scheduler:
        raise BadLineError("`scheduler` must be a string that is not empty")
    timeout = raw.get("timeout")
    if timeout is not None and not (_is_number(timeout) and timeout >= 0):
        raise BadLineError(f"`timeout` is {timeout!r}: it must be a number of seconds, 0 or more")
    steps = raw.get("steps")
    if not isinstance(steps, list):
        raise BadLineError("`steps` must be a list")
    leader = raw.get("leader")
    move = RegionMove(
        regions=_ids(raw.get("regions"), "regions"),
        steps=tuple(_step(step) for step in steps),
        leader=None if leader is None else _number(leader, "leader"),
        peers=() if raw.get("peers") is None else _ids(raw["peers"], "peers"),
    )
    return region_operator(id=name, source=scheduler, move=move, settings=settings, timeout=timeout)


def _step(raw: Any) -> Step:
    raw = _object(raw, "a step")
    name = raw.get("kind")
    kind: StepKind | None = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise BadLineError(f"unknown step {name!r}: it must be one of {', '.join(_KINDS)}")
    numbers = {key: _number(raw[key], key) for key in ("store", "from", "to") if raw.get(key) is not None}
    return Step(kind, numbers.get("store"), numbers.get("from"), numbers.get("to"))


def _object(raw: Any, what: str) -> Json:
    if not isinstance(raw, dict):
        raise BadLineError(f"{what} must be an object")
    return raw


def _id(record: Mapping[str, Any]) -> str:
    name = record.get("id")
    if not isinstance(name, str):
        raise BadLineError(f"{record['do']} needs `id`, a string")
    return name


def _ids(raw: Any, what: str) -> tuple[int, ...]:
    if not isinstance(raw, list):
        raise BadLineError(f"`{what}` must be a list of numbers")
    return tuple(_number(item, what) for item in raw)


def _number(raw: Any, what: str) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or not 0 <= raw < _IDS_END:
        raise BadLineError(f"`{what}` must be a whole number, 0 or more")
    return raw


def _is_number(raw: Any) -> bool:
    return isinstance(raw, int | float) and not isinstance(raw, bool) and -_TIMES_END < raw < _TIMES_END


def _name(raw: Any) -> str | None:
    """The id of an operator that could not be read, if it has one."""
    name = raw.get("id") if isinstance(raw, dict) else None
    return name if isinstance(name, str) else None


def _ignored(at: float, record: Json, reason: Reason) -> Json:
    name = _name(record) or _name(record.get("operator"))
    return {"at": at, "event": "ignored", **({} if name is None else {"id": name}), "reason": reason.value}


def _print(at: float, event: Event) -> Json:
    out: Json = {"at": at, "event": "", "id": event.id}
    reason: Reason | None = None
    match event:
        case Accepted():
            out["event"] = "accepted"
        case Promoted():
            out["event"] = "promoted"
        case Advanced():
            out["event"] = "advanced"
        case Rejected():
            out["event"], reason = "rejected", event.reason
        case Ignored():
            out["event"], reason = "ignored", event.reason
        case Ended():
            out["event"], reason = event.how.value, None if event.reason in _PLAIN_ENDS else event.reason
    if reason is not None:
        out["reason"] = reason.value
    return out


def _print_why(answer: Why) -> Json:
    out: Json = {
        "store": answer.target,
        "used": answer.used,
        "reserved": answer.reserved,
        "needs": answer.needs,
        "limit": answer.limit,
        "blocked_by": list(answer.blocked_by),
    }
    if answer.more:
        out["more"] = answer.more
    return out


def in_words(record: dict[str, Any]) -> bytes:
    """One event of a replay in words; a `state` says for each waiting operator what it waits for."""
    at = f"{record['at'] or 0:>10g}"
    if record["event"] != "state":
        return f"{at}  {record['event']:<9} {record.get('id') or '-'}  {record.get('reason', '')}".rstrip().encode()
    lines = [f"{at}  state     {len(record['running'])} run, {len(record['waiting'])} wait"]
    for name, why in record["why"].items():
        behind = ", ".join(why["blocked_by"]) + (f" and {why['more']} more" if "more" in why else "")
        lines.append(
            f"{'':>12}{name} waits for store {why['store']}: needs {why['needs']} · used {why['used']} · "
            f"reserved {why['reserved']} · limit {why['limit']}; behind {behind}"
        )
    return "\n".join(lines).encode()
