"""A recording that can be shared: without credentials, and with pseudonyms instead of names.

A recording has no Secret, environment, argument or image to begin with. What is taken out of every text is what is
taken out of a snapshot, too: user names and passwords in a URL, and bearer tokens. With `names` it is the meaning of a
field that decides: what is in one that holds a name or a namespace is hidden wherever it stands, however it is spelled,
and so is every word that Mooring does not use itself: `acme-tikv-0` becomes `able00004-tikv-0` in names, labels,
addresses and reasons. Fields that hold one of our own words keep it. Addresses become addresses (`pseudonyms`).

The pseudonyms sort as the words did, since ties break by name, and a digest of names becomes that of their pseudonyms,
so that the recording still replays equal.
"""

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import msgspec

from mooring.capabilities.fleet.live.ledger import DECISIONS, MACHINES, packed, unpacked
from mooring.capabilities.fleet.live.node_metadata import APPLIED, SEAL, seal
from mooring.capabilities.fleet.live.settings import TEMPLATE, FleetSettings, parse_settings
from mooring.capabilities.registry import descriptors
from mooring.core.engine.recording.memory import CONTAINERS
from mooring.core.engine.recording.reading import naming
from mooring.core.engine.recording.records import PodRow, Tag
from mooring.process.blackbox.file import FrameWriter, Header, Part, RecordingFile, create, header_line
from mooring.process.blackbox.pseudonyms import Names, Pseudonyms, Rewrite
from mooring.process.blackbox.writer import header_of
from mooring.process.settings.config import Config

_LOGIN: Final = re.compile(r"(?<=://)[^/@\s\"']+@|(?<=[Bb]earer )[\w.~+/-]{8,}=*")
#: Fields that hold a name, and nothing else; `name` does where a uid or a namespace stands beside it.
_NAMES: Final = frozenset({"namespace", "node", "nominated_node", "generate_name", "serial"})
#: Fields whose values are words of ours or of Kubernetes, whatever somebody called their namespace.
_OURS: Final = frozenset(
    {
        "api_version",
        "effect",
        "kind",
        "node_class",
        "on",
        "operator",
        "phase",
        "reason",
        "source",
        "state",
        "status",
        "verb",
    }
)
_ROW: Final = PodRow.__struct_fields__
#: How a value of the engine's memory begins that is no plain one.
_VALUES: Final = frozenset({"node", "again", "read", "made", "dict", "tuple", "list", "set", "frozenset"})
T = TypeVar("T")


def redact(recording: RecordingFile, to: Path, *, names: bool) -> int:
    """Write it; answers with how many words were replaced."""
    walk = _Walk(_without_logins)
    replaced = 0
    if names:
        texts: set[str] = set()
        found = Names()

        def note(text: str) -> str:
            texts.add(text)
            return text

        collect = _Walk(note)

        def learn(record: Any) -> None:
            collect.record(record)
            _each_dict(record, lambda one: _names_in(one, found))
            _rows_in(record, found)

        for part in recording.parts:
            collect.header(part.header)
            for _ in _each_record(part, learn):
                pass
        pseudonyms = Pseudonyms(texts, found)
        replaced = len(pseudonyms.words)
        rewrite: Rewrite = cache(lambda text: pseudonyms.rewrite(_without_logins(text)))
        digests: dict[str, str] = {}
        for part in recording.parts:
            for _ in _each_record(part, lambda one: _each_dict(one, lambda d: digests.update(_digests(d, rewrite)))):
                pass
        pseudonyms.words.update(digests)
        walk = _Walk(
            cache(lambda text: pseudonyms.rewrite(_without_logins(text))),
            cache(lambda text: pseudonyms.rewrite(_without_logins(text), names=False)),
        )

    file = create(to)
    try:
        with file:
            _write(recording, file, walk)
    except BaseException:
        to.unlink(missing_ok=True)
        raise
    return replaced


def _write(recording: RecordingFile, file: BinaryIO, walk: "_Walk") -> None:
    for part in recording.parts:
        file.write(header_line(walk.header(part.header)))
        frames = FrameWriter()
        file.writelines(
            frames.frame([record])
            for record in _each_record(part, lambda record: msgspec.msgpack.encode(walk.record(record)))
        )


def _each_record(part: Part, of: Callable[[Any], T]) -> Iterator[T]:
    """What `of` makes of each. `DamagedError`: one of them is none of ours."""
    with part.naming_damage():
        for number, record in enumerate(part.records(), 1):
            with naming(number):
                made = of(msgspec.msgpack.decode(record))
            yield made


class _Walk:
    """The same value with every text rewritten, except where a word of ours stands."""

    def __init__(self, rewrite: Rewrite, ours: Rewrite | None = None) -> None:
        """`ours`: of what a field for words of a vocabulary holds; a kind may be anybody's."""
        self._rewrite = rewrite
        self._ours = rewrite if ours is None else ours

    def header(self, header: Header) -> Header:
        plain = msgspec.to_builtins(header)
        return msgspec.convert(
            plain | {"identity": self._rewrite(header.identity), "settings": self._settings(plain["settings"])}, Header
        )

    def _settings(self, value: Any) -> Any:
        match value:
            case dict():
                return {self._key(key): self._settings(one) for key, one in value.items()}
            case list():
                return [self._settings(one) for one in value]
            case str() if value in _default_texts():
                return value  # a default names nobody, and some are of a vocabulary
        return self.value(value)

    def _key(self, key: str) -> str:
        return key if key in _fields() | _settings() else self._rewrite(key)

    def record(self, record: Any) -> Any:
        match record:
            case [Tag.MEMORY, bytes(memory)]:
                parts = [[*part[:3], self._kept(part[0], part[1], part[3])] for part in msgspec.msgpack.decode(memory)]
                return [record[0], msgspec.msgpack.encode(parts)]
            case [tag, *rest]:
                return [tag, *map(self.value, rest)]
        return self.value(record)

    def value(self, value: Any, field: str = "") -> Any:
        """Bytes are records inside of records."""
        match value:
            case str():
                return self._ours(value) if field in _OURS else self._rewrite_text(value)
            case bytes():
                return msgspec.msgpack.encode(self.value(msgspec.msgpack.decode(value)))
            case list():
                return [self.value(one, field) for one in value]
            case dict():
                is_struct = field not in _mappings()
                return {
                    key if is_struct and key in _fields() else self.value(key): self._packed(one)
                    if key in {DECISIONS, MACHINES}
                    else self.value(one, key if is_struct and isinstance(key, str) else "")
                    for key, one in value.items()
                }
        return value

    def _rewrite_text(self, text: str) -> str:
        """Marks and records are JSON, with names in their fields."""
        if text[:1] in {"{", "["}:
            try:
                plain = msgspec.json.decode(text)
            except msgspec.DecodeError:
                return self._rewrite(text)
            if msgspec.json.encode(plain).decode() == text:
                return msgspec.json.encode(self.value(plain)).decode()
        return self._rewrite(text)

    def _kept(self, number: int, name: str, values: list[Any]) -> list[Any]:
        """Of a class, of the roots, and of what is kept for each capability: each after its name."""
        by_name = values[::2] if name.endswith(("dict", "Dict")) else []
        is_ours = not number or (len(by_name) > 1 and _features().issuperset(map(str, by_name)))
        if not is_ours and name.rpartition(":")[2] in CONTAINERS:
            return values if _features().issuperset(map(str, values)) else [self._memory(one) for one in values]
        return [
            one
            if place % 2 == 0
            else self._memory(one, values[place - 1] if isinstance(values[place - 1], str) else "")
            for place, one in enumerate(values)
        ]

    def _memory(self, value: Any, field: str = "") -> Any:
        match value:
            case ["enum" | "anchor", *_]:
                return value
            case ["made", str(name), *rest]:
                fields = _structs().get(name.rpartition(":")[2], ())
                named = (*fields, *[""] * len(rest))
                return [*value[:2], *(self._memory(one, said) for one, said in zip(rest, named, strict=False))]
            case ["read", str(name), record]:
                return ["read", name, self.value(record)]
            case ["dict", *rest] if len(rest) > 2 and _features().issuperset(map(str, rest[::2])):
                return ["dict", *self._kept(0, "dict", rest)]
            case ["tuple", str(first), _, *_] if first in _features():  # who proposed it, and for whom
                return ["tuple", first, *(self._memory(one, field) for one in value[2:])]
            case [str(what), *rest] if what in _VALUES:
                return [what, *(self._memory(one, field) for one in rest)]
        return self.value(value, field)

    def _packed(self, stored: Any) -> Any:
        """Those of a fleet: longer ones are compressed."""
        try:
            text = unpacked(stored.encode()).decode()
        except (AttributeError, ValueError, zlib.error):
            return self.value(stored)
        return packed(self._rewrite_text(text).encode()).decode()


@cache
def _structs() -> Mapping[str, tuple[str, ...]]:
    """The fields of our structs, by their names."""
    found: dict[str, tuple[str, ...]] = {}
    waiting = [msgspec.Struct]
    while waiting:
        of = waiting.pop()
        waiting += of.__subclasses__()
        if of.__module__.startswith("mooring."):
            found[of.__name__] = of.__struct_fields__
    return found


@cache
def _fields() -> frozenset[str]:
    spelled = {one for fields in _structs().values() for one in fields}
    return frozenset(spelled | {one.replace("_", "-") for one in spelled})


@cache
def _features() -> frozenset[str]:
    return frozenset(one.name for one in descriptors())


@cache
def _settings() -> frozenset[str]:
    """What is written before a colon in a file of settings."""
    found: set[str] = set()
    _each_dict(header_of(Config(), "", 0.0).settings, found.update)
    return frozenset(found)


@cache
def _default_texts() -> frozenset[str]:
    """What is written after a colon in the settings that Mooring comes with."""
    found: set[str] = set()
    plain = msgspec.json.decode(msgspec.json.encode(header_of(Config(), "", 0.0).settings))
    _each_dict(plain, lambda one: found.update(value for value in one.values() if isinstance(value, str)))
    return frozenset(found)


@cache
def _mappings() -> frozenset[str]:
    """Fields that hold values by what somebody called them."""
    found, waiting = set(), [msgspec.Struct]
    while waiting:
        of = waiting.pop()
        waiting += of.__subclasses__()
        if of.__module__.startswith("mooring."):
            hints = vars(of).get("__annotations__", {})
            found |= {name for name, hint in hints.items() if re.search(r"[Mm]apping\[|dict\[|Labels", str(hint))}
    return frozenset(found - {"before", "patch"})  # with words of ours before each colon


def _names_in(one: dict[Any, Any], found: Names) -> None:
    for field in _NAMES:
        found.add(one.get(field))
    if "uid" in one or "namespace" in one:
        found.add(one.get("name"))
        found.add_pair(one.get("namespace"), one.get("name"))


def _rows_in(record: Any, found: Names) -> None:
    """Pods are written as rows, or in columns."""
    match record:
        case [Tag.PODS | Tag.KEPT_PODS, list(rows)]:
            pass
        case [Tag.PODS | Tag.KEPT_PODS | Tag.TURNS, _, list(columns), *_]:
            given = {name: column for name, column in zip(_ROW, columns, strict=False) if isinstance(column, list)}
            rows = [dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True)]
        case [Tag.TURN, _, _, events, *_]:
            rows = [event[1] for event in events if isinstance(event, list) and event[:1] == ["Pod"]]
        case _:
            return
    for row in rows:
        _names_in(row if isinstance(row, dict) else dict(zip(_ROW, row, strict=False)), found)


def _each_dict(value: Any, look: Callable[[dict[Any, Any]], None]) -> None:
    match value:
        case bytes():
            _each_dict(msgspec.msgpack.decode(value), look)
        case list():
            for one in value:
                _each_dict(one, look)
        case dict():
            look(value)
            for one in value.values():
                _each_dict(one, look)


def _digests(one: dict[Any, Any], rewrite: Rewrite) -> dict[str, str]:
    """Of what Fleet keeps in a ConfigMap, and of what it noted on a node: each with what it is of the pseudonyms."""
    match one:
        case _ if isinstance(one.get(TEMPLATE), str):
            was, will_be = parse_settings(one), parse_settings(_Walk(rewrite).value(one))
            if isinstance(was, FleetSettings) and isinstance(will_be, FleetSettings):
                return {was.revision: will_be.revision, was.query: will_be.query}
        case {"name": str(name), "labels": dict(labels), "annotations": dict(annotations)} if SEAL in labels:
            record = annotations.get(APPLIED) or ""
            return {seal(name, record): seal(rewrite(name), rewrite(record))}
    return {}


def _without_logins(text: str) -> str:
    return _LOGIN.sub("", text)
