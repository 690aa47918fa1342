"""What stands for a name in a recording that is handed over. It sorts as the name did.

A word is hidden everywhere if Mooring does not use it itself. If it does, the word is hidden where a known name stands:
`drain/web-0` is a pod in the namespace `drain`, and `drain` alone in a sentence is ours. What is only a number stays.
"""

import ast
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any, Final

import mooring

Rewrite = Callable[[str], str]
_UID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_V4: Final = r"(?<![0-9])\d{1,3}(?:\.\d{1,3}){3}(?![0-9])(?:/\d{1,2}(?![0-9/.]))?"
_V6: Final = r"(?<![\w:.])(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}(?![\w:])"
#: As some clouds call a node.
_DASHED: Final = r"(?<=\bip-)\d{1,3}(?:-\d{1,3}){3}(?![0-9])"
_WORD: Final = re.compile(f"{_UID}|{_V4}|{_V6}|{_DASHED}|[A-Za-z0-9]+")
_ADDRESS: Final = re.compile(f"{_V4}|{_V6}|{_DASHED}")
#: Something that may be called by a name, or lead to it.
_RUN: Final = re.compile(r"[\w.:@-]+(?:/[\w.:@-]+)*")
#: After these a sentence names something.
_BEFORE: Final = re.compile(r"(?:\b(?:namespace|cluster|node|workload|pool|of|in|on|from|to|by) |[\"'=])$")
#: Numbers, quantities, times, and what instructions and the zones of racks are called.
_NUMBER: Final = re.compile(r"i\d+|rack\d+|\d+(?:m|k|Ki|Mi|Gi|Ti|s|h|d|n|u|pct|Z|T\d+Z?)?")
#: In our texts as examples only.
_EXAMPLES: Final = frozenset({"demo", "web", "shop", "prod"})
#: What names are parsed by or built from: a TidbCluster's components, Kubernetes' own namespaces, our objects.
_PARTS: Final = frozenset(
    {
        "tikv", "tidb", "pd", "tiflash", "ticdc", "tiproxy", "peer", "svc", "cluster", "local", "kube", "system",
        "default", "ip", "mooring",
    }
)  # fmt: skip
#: Where the words are that decisions and records are made of.
_OURS: Final = ("core", "capabilities", "clients/wire", "process/settings", "process/blackbox")


class Names:
    """What somebody called something, by the fields that hold it."""

    def __init__(self) -> None:
        self.all: set[str] = set()
        self.pairs: set[tuple[str, str]] = set()

    def add(self, name: Any) -> None:
        """Not that of an object of ours (`mooring-mix-memory`): the engine writes it again."""
        if isinstance(name, str) and name and not name.startswith("mooring-"):
            self.all.add(name)

    def add_pair(self, namespace: Any, name: Any) -> None:
        if isinstance(namespace, str) and isinstance(name, str):
            self.pairs.add((namespace, name))


class Pseudonyms:
    def __init__(self, texts: Iterable[str], names: Names) -> None:
        found = {word for text in texts for word in _WORD.findall(text)}
        addresses = {word for word in found if _ADDRESS.fullmatch(word)}
        words = {word for word in found - addresses if not re.fullmatch(_UID, word)}  # a uid says nothing
        spelled = {word for name in names.all for word in _WORD.findall(name)} & words
        words |= {word for one in addresses if _is_none(one) for word in re.findall("[A-Za-z0-9]+", one)}
        kept = sorted(word for word in words if _NUMBER.fullmatch(word) or word in _vocabulary() | _PARTS)
        #: Of ours, and in a name.
        self._both = {word for word in spelled.intersection(kept) if not _NUMBER.fullmatch(word)} - _PARTS
        self._names = {name for name in names.all if self._both.intersection(_WORD.findall(name))}
        self._pairs = names.pairs
        self.words: dict[str, str] = {}
        for number, word in enumerate(sorted((words - set(kept)) | self._both)):
            before = bisect_left(kept, word)
            self.words[word] = f"{kept[before - 1] if before else ''}0{number:05}"
        self.words.update(_addresses({one for one in addresses if not _is_none(one)}))

    def rewrite(self, text: str, *, names: bool = True) -> str:
        """Not `names`: it holds none, so that what is a word of ours stays."""
        if not (names and self._names):
            return self._words(text, hide=False)
        rewritten, end = [], 0
        for run in _RUN.finditer(text):
            rewritten += [text[end : run.start()], self._run(run[0], text, run.start())]
            end = run.end()
        return "".join((*rewritten, text[end:]))

    def _run(self, run: str, text: str, start: int) -> str:
        first, *rest = run.split("/")
        if not rest:
            is_name = run == text or not run.isalpha() or bool(_BEFORE.search(text, 0, start))
            return self._segment(run) if is_name else self._words(run, hide=False)
        if re.search(r"\.(?:io|com|dev)$", first):  # the key of a label
            return self._words(run, hide=False)
        is_pair = len(rest) == 1 and (first, rest[0]) in self._pairs
        head = self._segment(first) if is_pair else self._words(first, hide=False)
        return "/".join((head, *map(self._segment, rest)))

    def _segment(self, segment: str) -> str:
        if segment in self._names:
            return self._words(segment, hide=True)
        parts = [segment] if _ADDRESS.search(segment) else re.split(r"([.:@])", segment)
        return "".join(self._words(part, hide=len(parts) > 1 and self._begins(part)) for part in parts)

    def _begins(self, part: str) -> bool:
        """With a known name: the host of a pod, or its Service."""
        pieces = part.split("-")
        return any("-".join(pieces[:length]) in self._names for length in range(1, len(pieces) + 1))

    def _words(self, text: str, *, hide: bool) -> str:
        def one(word: re.Match[str]) -> str:
            if not hide and word[0] in self._both:
                return word[0]
            if word[0] not in self.words and _ADDRESS.fullmatch(word[0]) and _is_none(word[0]):
                return re.sub("[A-Za-z0-9]+", lambda inner: self.words.get(inner[0], inner[0]), word[0])
            return self.words.get(word[0], word[0])

        return _WORD.sub(one, text)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text.partition("/")[0].replace("-", "."))
    except ValueError:
        return None


def _is_none(text: str) -> bool:
    """It is only written like an address: a time of day."""
    found = _address(text)
    return found is None or found.is_unspecified or found.is_loopback


def _addresses(found: set[str]) -> dict[str, str]:
    """Octet by octet, from the largest down, with as many digits each: they sort as before, as numbers and as texts."""
    of = {text: text.partition("/")[0].replace("-", ".") for text in found}
    octets = {one: tuple(map(int, one.split("."))) for one in of.values() if ":" not in one}
    below: dict[tuple[int, ...], set[int]] = {}
    for numbers in octets.values():
        for place, number in enumerate(numbers):
            below.setdefault(numbers[:place], set()).add(number)
    becomes = {before: _octets(after) for before, after in below.items()}
    sixth = sorted({one for one in of.values() if ":" in one})
    made = {one: f"fdff::{0x1000 + place:x}" for place, one in enumerate(sixth)}
    for one, numbers in octets.items():
        made[one] = ".".join(str(becomes[numbers[:place]][number]) for place, number in enumerate(numbers))
    return {text: _as_written(text, made[one]) for text, one in of.items()}


def _as_written(text: str, address: str) -> str:
    before, slash, after = text.partition("/")
    if slash and int(after) <= 32 and int(ip_address(before)) % 2 ** (32 - int(after)) == 0:  # a network stays one
        return str(ip_network(f"{address}/{after}", strict=False))
    return address.replace(".", "-" if "-" in text else ".") + slash + after


def _octets(found: set[int]) -> dict[int, int]:
    """0 stays: networks end in it."""
    made: dict[int, int] = {}
    last = "a"
    for octet in sorted(found, key=str, reverse=True):
        same = [n for n in range(1, 256) if len(str(n)) == len(str(octet)) and str(n) < last] if octet else [0]
        made[octet] = max(same, key=str)
        last = str(made[octet])
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
