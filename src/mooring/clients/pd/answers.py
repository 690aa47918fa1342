"""PD's JSON, of every version from 2.1 to 8.5, into the model: parse → project → drop.

The shapes drift: zero counts are left out by old versions and written by new ones, sizes are humanised, times are RFC
3339 with nanoseconds, operators are listed as one long string each. Nothing here guesses: what PD did not say becomes
the model's zero or None, never an error, unless the answer is no JSON at all.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

import msgspec

from mooring.clients.ports import Json, UnansweredError
from mooring.clients.texts import printable
from mooring.core.model.tidb import LARGEST_NUMBER, Number, PdLock, PdMember, PdOperator, PdPause, Store

T = TypeVar("T")


class _StoreMeta(msgspec.Struct):
    id: Number
    address: str = ""
    state_name: str = "Up"
    last_heartbeat: Number = 0
    labels: list[dict[str, str]] | None = None


class _StoreStatus(msgspec.Struct):
    capacity: str | Number = 0
    available: str | Number = 0
    leader_count: Number = 0
    leader_weight: float = 1.0
    leader_size: Number = 0
    region_count: Number = 0
    region_weight: float = 1.0
    region_size: Number = 0
    start_ts: str | None = None
    last_heartbeat_ts: str | None = None


class _StoreAnswer(msgspec.Struct):
    store: _StoreMeta
    status: _StoreStatus = msgspec.field(default_factory=_StoreStatus)


class _Stores(msgspec.Struct):
    stores: list[_StoreAnswer] | None = None


class _Member(msgspec.Struct):
    name: str = ""
    #: PD chooses it at random: an unsigned 64-bit number.
    member_id: int = 0
    client_urls: list[str] | None = None
    health: bool | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.member_id < 1 << 64:
            raise ValueError("a member's id has 64 bits")


class _Header(msgspec.Struct):
    cluster_id: int = 0


class _Members(msgspec.Struct):
    header: _Header | None = None
    members: list[_Member] | None = None
    leader: _Member | None = None


class StoreStatus(msgspec.Struct):
    version: str = ""
    start_timestamp: Number = 0


class _Pause(msgspec.Struct):
    name: str = ""
    paused_at: str = ""
    resume_at: str = ""


class _Task(msgspec.Struct):
    type: str = ""
    id: str = ""
    start_timestamp: Number = 0
    description: str = ""


class _EvictList(msgspec.Struct):
    ranges: dict[str, Any] | None = msgspec.field(default=None, name="store-id-ranges")


_STORES: Final = msgspec.json.Decoder(_Stores)
_STORE: Final = msgspec.json.Decoder(_StoreAnswer)
_MEMBERS: Final = msgspec.json.Decoder(_Members)
_HEALTH: Final = msgspec.json.Decoder(list[_Member] | None)
_STATUS: Final = msgspec.json.Decoder(StoreStatus)
_EVICT_LIST: Final = msgspec.json.Decoder(_EvictList)
_TASKS: Final = msgspec.json.Decoder(list[_Task] | None)
_PAUSES: Final = msgspec.json.Decoder(list[_Pause | str] | None)
_STRINGS: Final = msgspec.json.Decoder(list[str] | None)
_TEXT: Final = msgspec.json.Decoder(str)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])

_UNITS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_SIZE: Final = re.compile(r"^\s*([0-9.]+)\s*([KMGTPE]?)i?B?\s*$", re.IGNORECASE)
#: What stands before `(kind:`. None of these looks at a character twice: the line may be hostile, and long.
_OPERATOR: Final = re.compile(r"(?:status: (?P<status>\w+), operator: )?(?P<desc>\S+) (?:\{(?P<brief>.*)\} )?")
_REGION_OF: Final = re.compile(r", region:(\d{1,19})\b")
#: Digits of a 64-bit number; Python refuses to read thousands of them.
_DIGITS: Final = 19
#: More are no PD's. Of stores a large cluster has a thousand; operators and schedulers are listed as strings.
MOST_STORES: Final = 10_000
MOST_LABELS: Final = 100
MOST_MEMBERS: Final = 100
MOST_LISTED: Final = 50_000
EVICT_LEADER: Final = "evict-leader-scheduler"


def decode(decoder: "msgspec.json.Decoder[Any]", body: bytes, what: str) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        # A proxy's error page or half an answer: it says nothing about what PD knows.
        raise UnansweredError(f"PD's answer to {what} is not understood: {e}") from e


def bytes_of(size: str | int) -> int:
    """`100GiB`, `1.5 TB`, a plain number: PD counts in powers of 1024 whatever it prints."""
    if isinstance(size, int):
        return min(max(0, size), LARGEST_NUMBER)
    match = _SIZE.match(size[:64])
    if match is None:
        return 0
    try:
        return min(int(float(match[1]) * 1024 ** _UNITS[match[2].upper()]), LARGEST_NUMBER)
    except (ValueError, OverflowError):
        return 0


def _time_of(text: str | None) -> float | None:
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text[:64]).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if at > 0 else None  # Go's zero time means never


def few(found: Sequence[T] | None, most: int, what: str) -> Sequence[T]:
    """Unanswered: more than any PD has, so that what becomes of them is bounded before it is made."""
    if found is not None and len(found) > most:
        raise UnansweredError(f"PD lists {len(found)} {what}; {most} is the most that is read")
    return found or ()


def stores(body: bytes) -> tuple[Store, ...]:
    answer: _Stores = decode(_STORES, body, "stores")
    return tuple(sorted(map(_store, few(answer.stores, MOST_STORES, "stores")), key=lambda s: s.id))


def store(body: bytes) -> Store:
    return _store(decode(_STORE, body, "a store"))


def _store(answer: _StoreAnswer) -> Store:
    meta, status = answer.store, answer.status
    heartbeat = _time_of(status.last_heartbeat_ts)
    if heartbeat is None and meta.last_heartbeat > 0:
        heartbeat = meta.last_heartbeat / 1e9
    return Store(
        id=meta.id,
        address=meta.address,
        state=meta.state_name,
        leader_count=status.leader_count,
        region_count=status.region_count,
        leader_size_mib=status.leader_size,
        region_size_mib=status.region_size,
        capacity_bytes=bytes_of(status.capacity),
        available_bytes=bytes_of(status.available),
        leader_weight=status.leader_weight,
        region_weight=status.region_weight,
        last_heartbeat_at=heartbeat,
        started_at=_time_of(status.start_ts),
        labels={label.get("key", ""): label.get("value", "") for label in few(meta.labels, MOST_LABELS, "labels")},
    )


def members(body: bytes) -> tuple[tuple[PdMember, ...], str]:
    """The members by name, and the leader's name ("" while there is none)."""
    answer: _Members = decode(_MEMBERS, body, "members")
    listed = few(answer.members, MOST_MEMBERS, "members")
    found = (PdMember(m.name, m.member_id, tuple(few(m.client_urls, MOST_LABELS, "addresses"))) for m in listed)
    return tuple(sorted(found, key=lambda m: m.name)), answer.leader.name if answer.leader else ""


def cluster_id(body: bytes) -> int:
    """PD's own, from the header of its answer for the members; 0: none that has 64 bits."""
    answer: _Members = decode(_MEMBERS, body, "members")
    found = answer.header.cluster_id if answer.header is not None else 0
    return found if 0 <= found < 1 << 64 else 0


def lock(body: bytes) -> PdLock | None:
    """The first of the tasks that PD lists: it lets one run at a time."""
    listed = few(decode(_TASKS, body, "maintenance"), MOST_LISTED, "tasks")
    if not listed:
        return None
    one = listed[0]
    words = printable(one.description.strip('"'))
    return PdLock(printable(one.type), printable(one.id), float(one.start_timestamp), words)


def health(body: bytes) -> dict[int, bool | None]:
    answer: list[_Member] | None = decode(_HEALTH, body, "health")
    return {m.member_id: m.health for m in answer or ()}


def status(body: bytes) -> StoreStatus:
    answer: StoreStatus = decode(_STATUS, body, "status")
    return answer


def names(body: bytes, what: str) -> tuple[str, ...]:
    answer: list[str] | None = decode(_STRINGS, body, what)
    return tuple(few(answer, MOST_LISTED, what))


def pauses(body: bytes, date: str) -> tuple[PdPause, ...]:
    """Paused schedulers by name, with what PD says of their time; before 6.2 it says nothing."""
    answer: list[_Pause | str] | None = decode(_PAUSES, body, "paused schedulers")
    try:
        # By the second, rounded down: a pause ends no later than it is said to.
        now = parsedate_to_datetime(date).timestamp() + 1
    except ValueError:
        now = float("inf")
    found = (PdPause(p, 0.0, 0.0) if isinstance(p, str) else _pause(p, now) for p in few(answer, MOST_STORES, "pauses"))
    return tuple(sorted(found, key=lambda p: p.name))


def _pause(answer: _Pause, now: float) -> PdPause:
    begin, end = _time_of(answer.paused_at) or 0.0, _time_of(answer.resume_at) or 0.0
    return PdPause(answer.name, round(end - begin), max(0.0, end - now))


def evicting_by_list(body: bytes) -> tuple[int, ...]:
    """The one scheduler's store ids (4.0 and later). It may stay behind with an empty map: then nothing is evicted."""
    answer: _EvictList = decode(_EVICT_LIST, body, "evict-leader list")
    return tuple(sorted(filter(None, map(_id, few(list(answer.ranges or ()), MOST_STORES, "evicted stores")))))


def evicting_by_name(schedulers: tuple[str, ...]) -> tuple[int, ...]:
    """2.x and 3.x had one scheduler per store, with the id in its name."""
    prefix = EVICT_LEADER + "-"
    ids = (name.removeprefix(prefix) for name in schedulers if name.startswith(prefix))
    return tuple(sorted(filter(None, map(_id, ids))))


def _id(text: str) -> int:
    """0: no id."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else 0


def operators(body: bytes) -> tuple[PdOperator, ...]:
    found = (operator(line) for line in names(body, "operators"))
    return tuple(sorted((op for op in found if op is not None), key=lambda op: op.region_id))


def operator(line: str) -> PdOperator | None:
    """One operator from PD's own print of it; None when the line is none (a future layout)."""
    head, kind, _ = line.partition("(kind:")
    match, region = _OPERATOR.fullmatch(head), _REGION_OF.search(line)
    if not kind or match is None or region is None:
        return None
    return PdOperator(
        region_id=int(region[1]),
        desc=match["desc"],
        brief=match["brief"] or "",
        status=match["status"] or "RUNNING",
        steps=tuple(_steps(line.partition("steps:[")[2])),
    )


def _steps(printed: str) -> Iterator[str]:
    """`0:{…}, 1:{…}` → what is in the braces."""
    at = 0
    while (begins := printed.find(":{", at)) > 0 and (ends := printed.find("}", begins)) > 0:
        if printed[begins - 1].isdecimal():
            yield printed[begins + 2 : ends]
        at = ends


def text(body: bytes) -> str:
    """An answer for people: PD sends a JSON string, sometimes quoted twice, sometimes plain text, sometimes nothing."""
    said = body.decode("utf-8", "replace").strip()
    for _ in range(2):
        if not said.startswith('"'):
            break
        try:
            said = _TEXT.decode(said.encode()).strip()
        except (msgspec.MsgspecError, RecursionError):
            break
    if said.startswith("{"):
        try:
            return str(_OBJECT.decode(said.encode()).get("msg", said))
        except (msgspec.MsgspecError, RecursionError):
            return said
    return said


def plain(body: bytes, what: str) -> Json:
    answer: Json = decode(_OBJECT, body, what)
    return answer
