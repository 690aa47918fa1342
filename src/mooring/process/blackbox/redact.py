"""A recording that can be shared: without credentials, and with pseudonyms instead of names.

A recording has no Secret, environment, argument or image to begin with. What is taken out of every text is what is
taken out of a snapshot, too: user names and passwords in a URL, and bearer tokens. With `names` every word that Mooring
does not use itself is replaced, everywhere alike: `acme-tikv-0` becomes `able00004-tikv-0` in names, labels, addresses
and reasons. The pseudonyms sort as the words did, since ties break by name, and a digest of names becomes that of their
pseudonyms, so that the recording still replays equal.
"""

import ast
import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import msgspec

import mooring
from mooring.capabilities.fleet.live.ledger import DECISIONS
from mooring.capabilities.fleet.live.node_metadata import APPLIED, SEAL, seal
from mooring.capabilities.fleet.live.settings import TEMPLATE, FleetSettings, parse_settings
from mooring.capabilities.fleet.live.store import packed, unpacked
from mooring.core.engine.recording.reading import naming
from mooring.process.blackbox.file import FrameWriter, Header, Part, RecordingFile, create, header_line

_LOGIN: Final = re.compile(r"(?<=://)[^/@\s\"']+@|(?<=[Bb]earer )[\w.~+/-]{8,}=*")
_WORD: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[A-Za-z0-9]+")
#: Numbers, quantities, times, and what instructions and the zones of racks are called.
_NUMBER: Final = re.compile(r"i\d+|rack\d+|\d+(?:m|k|Ki|Mi|Gi|Ti|s|h|d|n|u|pct|Z|T\d+Z?)?")
#: In our texts as examples only.
_EXAMPLES: Final = frozenset({"demo", "web", "shop", "prod"})
#: Where the words are that decisions and records are made of.
_OURS: Final = ("core", "capabilities", "clients/wire", "process/settings", "process/blackbox")
Rewrite = Callable[[str], str]
T = TypeVar("T")


def redact(recording: RecordingFile, to: Path, *, names: bool) -> int:
    """Write it; answers with how many words were replaced."""
    rewrite: Rewrite = _without_logins
    replaced = 0
    if names:
        found: set[str] = set()
        for part in recording.parts:
            _walk(msgspec.to_builtins(part.header), lambda text: _collect(text, found))
            for _ in _each_record(part, lambda record: _walk(record, lambda text: _collect(text, found))):
                pass
        pseudonyms = _pseudonyms(found)
        replaced = len(pseudonyms)

        def renamed(text: str) -> str:
            return _WORD.sub(lambda word: pseudonyms.get(word[0], word[0]), _without_logins(text))

        digests: dict[str, str] = {}
        for part in recording.parts:
            for _ in _each_record(part, lambda one: _each_dict(one, lambda d: digests.update(_digests(d, renamed)))):
                pass
        pseudonyms.update(digests)
        rewrite = cache(renamed)

    file = create(to)
    try:
        with file:
            _write(recording, file, rewrite)
    except BaseException:
        to.unlink(missing_ok=True)
        raise
    return replaced


def _write(recording: RecordingFile, file: BinaryIO, rewrite: Rewrite) -> None:
    for part in recording.parts:
        header = msgspec.convert(_walk(msgspec.to_builtins(part.header), rewrite), Header)
        file.write(header_line(header))
        frames = FrameWriter()
        file.writelines(
            frames.frame([record])
            for record in _each_record(part, lambda record: msgspec.msgpack.encode(_walk(record, rewrite)))
        )


def _each_record(part: Part, of: Callable[[Any], T]) -> Iterator[T]:
    """What `of` makes of each. `DamagedError`: one of them is none of ours."""
    with part.naming_damage():
        for number, record in enumerate(part.records(), 1):
            with naming(number):
                made = of(msgspec.msgpack.decode(record))
            yield made


def _walk(value: Any, rewrite: Rewrite) -> Any:
    """The same value with every text rewritten; bytes are records inside of records."""
    match value:
        case str():
            return rewrite(value)
        case bytes():
            return msgspec.msgpack.encode(_walk(msgspec.msgpack.decode(value), rewrite))
        case list():
            return [_walk(one, rewrite) for one in value]
        case dict():
            return {
                _walk(key, rewrite): _decisions(one, rewrite) if key == DECISIONS else _walk(one, rewrite)
                for key, one in value.items()
            }
        case _:
            return value


def _decisions(stored: Any, rewrite: Rewrite) -> Any:
    """Those of a fleet: longer ones are compressed."""
    try:
        text = unpacked(stored.encode()).decode()
    except (AttributeError, ValueError, zlib.error):
        return _walk(stored, rewrite)
    return packed(rewrite(text).encode()).decode()


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
            was, will_be = parse_settings(one), parse_settings(_walk(one, rewrite))
            if isinstance(was, FleetSettings) and isinstance(will_be, FleetSettings):
                return {was.revision: will_be.revision, was.query: will_be.query}
        case {"name": str(name), "labels": dict(labels), "annotations": dict(annotations)} if SEAL in labels:
            record = annotations.get(APPLIED) or ""
            return {seal(name, record): seal(rewrite(name), rewrite(record))}
    return {}


def _without_logins(text: str) -> str:
    return _LOGIN.sub("", text)


def _collect(text: str, found: set[str]) -> str:
    found.update(_WORD.findall(text))
    return text


def _pseudonyms(found: set[str]) -> dict[str, str]:
    """For each word that is not ours: the word of ours before it in the alphabet, and a number."""
    found = {word for word in found if "-" not in word}  # a uid says nothing
    kept = sorted(word for word in found if _NUMBER.fullmatch(word) or word in _vocabulary())
    made: dict[str, str] = {}
    for number, word in enumerate(sorted(found.difference(kept))):
        before = bisect_right(kept, word)
        made[word] = f"{kept[before - 1] if before else ''}0{number:05}"
    return made


@cache
def _vocabulary() -> frozenset[str]:
    root = Path(mooring.__file__).parent
    places = [root / place for place in _OURS]
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*.py"))]
    texts = (text for file in files for text in _texts(ast.parse(file.read_text())))
    return frozenset(word for text in texts for word in _WORD.findall(text)) - _EXAMPLES


def _texts(tree: ast.AST) -> Iterator[str]:
    """What code says: its texts, without those that only explain it, and the names of classes and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first, *rest = node.target.id.split("_")
            yield f"{node.target.id} {first}{''.join(word.title() for word in rest)}"  # as some are spelled outside
