"""What the cloud says about this machine, read from its metadata service at a link-local address.

Each source answers one question: is there a notice, and of which kind.

    interrupt   the machine goes at a known moment
    empty       it is to be stopped, nobody says when
    prepare     it is likely to go: no new pods, replacements where there is room
    tell        people should know

A source that cannot be read (silence, a proxy's page, a time that cannot be right) raises `MetadataError`: what was
known stays. Only an answer that says "nothing" takes a notice back. No proxy is ever used and no redirect followed: a
link-local address is this machine's own.
"""

import http.client
import json
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

ADDRESS: Final = "169.254.169.254"
_MOST_BYTES: Final = 256 * 1024
_TOKEN_S: Final = 21600
#: Google: from TRUE to the moment when the machine stops.
_PREEMPTED_S: Final = 30
#: A time outside of this span is not a time of a notice.
_PAST_S: Final = 86_400
_AHEAD_S: Final = 30 * 86_400


class MetadataError(Exception):
    """The source could not be read; the words say what came instead."""


class SilentError(MetadataError):
    """Nobody answers: the other sources need not be asked."""


class Notice(NamedTuple):
    kind: str
    #: For people: "AWS spot terminate".
    what: str
    #: Epoch seconds: when it goes (interrupt), else since when it is so.
    at: int


#: (now, what was known before) → what is known now.
Read = Callable[[float, Notice | None], Notice | None]
Answer = tuple[int, http.client.HTTPMessage, str]


class Metadata:
    """One request, one connection, one answer."""

    def __init__(self, address: str = ADDRESS, port: int = 80, timeout_s: float = 2.0) -> None:
        self._at = (address, port)
        self._timeout_s = timeout_s

    def ask(self, path: str, headers: dict[str, str], *, method: str = "GET", timeout_s: float = 0) -> Answer:
        connection = http.client.HTTPConnection(*self._at, timeout=timeout_s or self._timeout_s)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read(_MOST_BYTES).decode("utf-8", "replace").strip()
        except (OSError, http.client.HTTPException) as error:
            raise SilentError(f"no answer from {self._at[0]}: {error or type(error).__name__}") from None
        finally:
            connection.close()


class Aws:
    """Instance metadata service, version 2. 404 where there is no notice."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._token, self._until = "", 0.0
        self.sources: dict[str, Read] = {"spot": self._spot, "rebalance": self._rebalance}

    def _spot(self, now: float, _: Notice | None) -> Notice | None:
        found = self._get("spot/instance-action", now)
        if found is None:
            return None
        action = str(found.get("action", ""))
        if action not in {"terminate", "stop", "hibernate"}:
            raise MetadataError(f"spot/instance-action says {action[:40]!r}, not terminate, stop or hibernate")
        return Notice("interrupt", f"AWS spot {action}", _time(found.get("time"), now))

    def _rebalance(self, now: float, _: Notice | None) -> Notice | None:
        found = self._get("events/recommendations/rebalance", now)
        at = None if found is None else _time(found.get("noticeTime"), now)
        return None if at is None else Notice("prepare", "AWS rebalance recommendation", at)

    def _get(self, path: str, now: float) -> dict[str, Any] | None:
        for _ in range(2):
            if now >= self._until:
                ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)}
                status, _headers, token = self._metadata.ask("/latest/api/token", ttl, method="PUT")
                if status != 200 or not _is_word(token):
                    raise MetadataError(f"PUT /latest/api/token answered {status}, not a token")
                self._token, self._until = token, now + _TOKEN_S / 2
            status, _headers, text = self._metadata.ask(
                f"/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": self._token}
            )
            if status != 401:
                break
            self._until = 0.0
        return None if status == 404 else _object(path, status, text)


class Google:
    """Each answer carries `Metadata-Flavor: Google`: one without is another's."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.sources: dict[str, Read] = {"preempted": self._preempted, "maintenance": self._maintenance}

    def _preempted(self, now: float, before: Notice | None) -> Notice | None:
        word = self._get("preempted")
        if word not in {"TRUE", "FALSE"}:
            raise MetadataError(f"instance/preempted says {word[:40]!r}, not TRUE or FALSE")
        notice = Notice("interrupt", "Google preemption", int(now) + _PREEMPTED_S)
        return _as_before(notice, before) if word == "TRUE" else None

    def _maintenance(self, now: float, before: Notice | None) -> Notice | None:
        word = self._get("maintenance-event")
        # MIGRATE: the machine moves to another host and runs on.
        if word in {"NONE", "MIGRATE_ON_HOST_MAINTENANCE"}:
            return None
        if word not in {"TERMINATE_ON_HOST_MAINTENANCE", "SHUTDOWN_ON_HOST_MAINTENANCE"}:
            raise MetadataError(f"instance/maintenance-event says {word[:40]!r}")
        return _as_before(Notice("empty", "Google host maintenance", int(now)), before)

    def _get(self, path: str) -> str:
        status, headers, text = self._metadata.ask(
            f"/computeMetadata/v1/instance/{path}", {"Metadata-Flavor": "Google"}
        )
        if status != 200 or headers.get("Metadata-Flavor") != "Google":
            raise MetadataError(f"instance/{path} answered {status}, not as Google's metadata server does")
        return text


class Azure:
    """Scheduled Events list all machines of a scale set: only those that name this one count."""

    _HEADER: Final = {"Metadata": "true"}
    #: What stops the machine. Freeze is a pause of seconds.
    _STOPS: Final = frozenset({"Preempt", "Terminate", "Redeploy", "Reboot"})

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._name = ""
        self.sources: dict[str, Read] = {"scheduled-events": self._events}

    def _events(self, now: float, before: Notice | None) -> Notice | None:
        name = self._name or self._own_name()
        # The first answer of a machine's life may take long: Azure switches the service on for it.
        path = "/metadata/scheduledevents?api-version=2020-07-01"
        status, _headers, text = self._metadata.ask(path, self._HEADER, timeout_s=10.0)
        events = _object("scheduledevents", status, text).get("Events")
        if not isinstance(events, list):
            raise MetadataError("scheduledevents has no list of Events")
        found = [self._notice(one, now, before) for one in events if _is_about(one, name)]
        return min((one for one in found if one is not None), key=lambda one: one.at, default=None)

    def _notice(self, event: dict[str, Any], now: float, before: Notice | None) -> Notice | None:
        kind = event.get("EventType")
        if kind not in self._STOPS or event.get("EventStatus") not in {"Scheduled", "Started"}:
            return None
        what = f"Azure {kind}"
        if event.get("NotBefore"):
            return Notice("interrupt", what, _time(event["NotBefore"], now))
        # It has begun: no time stands there any more.
        return _as_before(Notice("interrupt", what, int(now)), before)

    def _own_name(self) -> str:
        path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
        status, _headers, text = self._metadata.ask(path, self._HEADER)
        if status != 200 or not _is_word(text):
            raise MetadataError(f"instance/compute/name answered {status}, not a name")
        self._name = text
        return text


def _is_word(text: str) -> bool:
    """Not a page of a proxy, and safe as a header's value."""
    return 0 < len(text) <= 512 and text.isascii() and text.isprintable() and not set(text) & set("<> ")


def _is_about(event: object, name: str) -> bool:
    resources = event.get("Resources") if isinstance(event, dict) else None
    return isinstance(resources, list) and any(isinstance(r, str) and r.lower() == name.lower() for r in resources)


def _as_before(notice: Notice, before: Notice | None) -> Notice:
    """The moment that was written when it was first seen, for it does not come again."""
    return before if before is not None and before[:2] == notice[:2] else notice


def _object(path: str, status: int, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text) if status == 200 else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise MetadataError(f"{path} answered {status} with {text[:40]!r}, not a JSON object")
    return found


def _time(text: object, now: float) -> int:
    """RFC 3339 as AWS writes it, or as in HTTP, as Azure does."""
    try:
        said = str(text)[:64]
        at = parsedate_to_datetime(said) if "," in said else datetime.fromisoformat(said)
        found = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        raise MetadataError(f"the notice says {str(text)[:40]!r}, which is not a time") from None
    if not now - _PAST_S <= found <= now + _AHEAD_S:
        raise MetadataError(f"the notice says {str(text)[:40]!r}, which cannot be the time of a notice")
    return int(found)


CLOUDS: Final[dict[str, Callable[[Metadata], Aws | Google | Azure]]] = {"aws": Aws, "google": Google, "azure": Azure}
#: How a Node's spec.providerID begins.
PROVIDERS: Final = {"aws://": "aws", "gce://": "google", "azure://": "azure"}
