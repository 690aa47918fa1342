"""What `list` and `watch` answer, read: first the envelope, then what is inside it.

In a watch line the object stays raw bytes until its type is known: a BOOKMARK's object has only a resourceVersion, an
ERROR's is a Status, and neither would pass for a Pod. Whatever is no answer of an API server (a proxy's page, half a
line) raises `BrokenStream`: it must never be mistaken for "there is nothing".
"""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from mooring.clients.kube.status import parse_status
from mooring.clients.ports import ListPage, UnansweredError, WatchEvent
from mooring.clients.wire import kube as wire
from mooring.core.model.kinds import Kind
from mooring.core.model.limits import shallow

#: The bookmark that ends the initial events of a WatchList carries this annotation.
INITIAL_END: Final = "k8s.io/initial-events-end"
#: The last is for what stands in an object's place and is none.
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, AttributeError)

T = TypeVar("T")


class BrokenStreamError(UnansweredError):
    """Something answered, but not as an API server does. Asking the same again may not help."""


class _Frame(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    resource_version: str
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct, gc=False):
    metadata: _Metadata


_frames: Final = msgspec.json.Decoder(_Frame)
_bookmarks: Final = msgspec.json.Decoder(_Bookmark)


def read_page(kind: Kind, body: bytes) -> ListPage:
    try:
        items, version, token = _without_depth(wire.decode_list, kind, body)
    except _UNREADABLE as error:
        raise BrokenStreamError(f"list {kind}: the answer is not a list ({error}): {body[:60]!r}") from error
    if not version:
        raise BrokenStreamError(f"list {kind}: the answer is not a list, it has no resourceVersion: {body[:60]!r}")
    if not all(item.uid for item in items):
        raise BrokenStreamError(f"list {kind}: an object without a uid in it: no API server has such")
    return ListPage(tuple(items), version, token)


def read_line(kind: Kind, line: bytes) -> WatchEvent:
    try:
        return _without_depth(_read_line, kind, line)
    except _UNREADABLE as error:
        raise BrokenStreamError(f"watch {kind}: a line that is not a watch event ({error}): {line[:60]!r}") from error


def _without_depth(read: Callable[[Kind, bytes], T], kind: Kind, body: bytes) -> T:
    """Where an object nests too deep, once more without that depth: one such must not cost all the others."""
    try:
        return read(kind, body)
    except RecursionError:
        return read(kind, shallow(body))


def _read_line(kind: Kind, line: bytes) -> WatchEvent:
    frame = _frames.decode(line)
    match frame.type:
        case "ADDED" | "MODIFIED" | "DELETED":
            obj = wire.decode(kind, frame.object)
            if not obj.uid:
                raise BrokenStreamError(f"watch {kind}: an object without a uid: {line[:60]!r}")
            return WatchEvent(frame.type, obj, obj.resource_version)
        case "BOOKMARK":
            meta = _bookmarks.decode(frame.object).metadata
            ended = (meta.annotations or {}).get(INITIAL_END) == "true"
            return WatchEvent("BOOKMARK", resource_version=meta.resource_version, initial_end=ended)
        case "ERROR":
            status = parse_status(frame.object)
            return WatchEvent("ERROR", code=status.code, message=status.message or status.reason)
        case other:
            raise BrokenStreamError(f"watch {kind}: an event of unknown type {other[:40]!r}")
