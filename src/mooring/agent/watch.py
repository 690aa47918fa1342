"""Watch this machine's notices and keep one annotation on its own Node: `mooring.dev/agent`.

    {"cloud": "aws", "checked": "2026-01-31T08:10:00Z",
     "notices": {"spot": {"kind": "interrupt", "what": "AWS spot terminate", "at": "2026-01-31T08:12:00Z"}}}

It is written when something changes and once an hour, so that `mooring doctor` can tell an agent that has died from a
quiet one. What cannot be read for three minutes stands there as `problem`; nothing else is done about it. The first
write changes nothing: its answer tells the cloud (spec.providerID) and what an agent before this one had written.

The process runs on every node: it stays on the standard library, and `python -m mooring.agent.watch` imports nothing
else of mooring. Its settings are environment variables (`mooring agent --help`).
"""

import binascii
import http.client
import json
import os
import signal
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from mooring.agent.clouds import CLOUDS, PROVIDERS, Metadata, MetadataError, Notice, Read, SilentError

KEY: Final = "mooring.dev/agent"
REBOOT: Final = "reboot-required"
ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
HEARTBEAT_S: Final = 3600
#: What cannot be read for so long is said on the Node.
PROBLEM_S: Final = 180.0
_LONGEST_PAUSE_S: Final = 60.0
#: An interruption that an earlier agent wrote is no more heard of.
_OVER_S: Final = 3600
_SLIM: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class Settings(NamedTuple):
    #: Its own Node.
    node: str = ""
    #: aws, google, azure or none; auto: as spec.providerID of the Node says.
    cloud: str = "auto"
    every_s: float = 5.0
    #: A file that says that the machine wants a reboot; none: it is not looked for.
    reboot_file: str = "/host/run/reboot-required"
    #: Whose token and ca.crt are used.
    account: str = ACCOUNT


VARIABLES: Final = {
    "node": "MOORING_AGENT_NODE",
    "cloud": "MOORING_AGENT_CLOUD",
    "every_s": "MOORING_AGENT_EVERY_S",
    "reboot_file": "MOORING_AGENT_REBOOT_FILE",
    "account": "MOORING_AGENT_ACCOUNT",
}


class ApiError(Exception):
    """The API server did not take a write, in words."""


class NodeApi:
    """Patch one Node, with this pod's own token."""

    def __init__(self, settings: Settings, host: str, port: int) -> None:
        self._settings = settings
        self._at = (host, port)

    def patch(self, annotation: str | None) -> dict[str, Any]:
        """The Node's metadata. None changes nothing, and answers the whole Node."""
        account = self._settings.account
        patch = {} if annotation is None else {"metadata": {"annotations": {KEY: annotation}}}
        connection = None
        try:
            # Anew each time: the kubelet replaces the token.
            with open(f"{account}/token", encoding="ascii") as file:  # noqa: PTH123 - pathlib costs a megabyte
                token = file.read().strip()
            context = ssl.create_default_context(cafile=f"{account}/ca.crt")
            connection = http.client.HTTPSConnection(*self._at, timeout=10.0, context=context)
            headers = {
                "Authorization": f"Bearer {token}",
                "Content-Type": "application/merge-patch+json",
                "Accept": "application/json" if annotation is None else _SLIM,
                "User-Agent": "mooring-agent",
            }
            path = f"/api/v1/nodes/{self._settings.node}?fieldManager=mooring-agent"
            connection.request("PATCH", path, json.dumps(patch), headers)
            answer = connection.getresponse()
            found = json.loads(answer.read(16 << 20))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ApiError(f"the API server did not answer: {error or type(error).__name__}") from None
        finally:
            if connection is not None:
                connection.close()
        if answer.status != 200 or not isinstance(found, dict):
            said = found.get("message") if isinstance(found, dict) else found
            raise ApiError(f"the API server answered {answer.status}: {str(said)[:200]}")
        return found


class Agent:
    """`turn` looks once and writes what is new."""

    def __init__(
        self, settings: Settings, api: NodeApi, metadata: Metadata, now: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._api = api
        self._metadata = metadata
        self._now = now
        self._cloud = ""
        #: None until the Node has answered: it says which cloud this is.
        self._sources: dict[str, Read] | None = None
        self._known: dict[str, Notice] = {}
        #: source → since when it cannot be read, and why.
        self._failing: dict[str, tuple[float, str]] = {}
        self._written: object = None
        self._written_at = 0.0
        self._failed, self._again_at = 0, 0.0
        # Not all nodes in one moment.
        self._heartbeat_s = HEARTBEAT_S + binascii.crc32(settings.node.encode()) % 600
        self._told = ""

    def turn(self) -> str:
        """What is new, in a line for the log; "": nothing."""
        now = self._now()
        line = self._told
        try:
            if self._sources is None and now >= self._again_at:
                self._begin(now)
            if self._sources is not None:
                self._look(now, self._sources)
                line = self._write(now) or line
        except ApiError as error:
            self._failed += 1
            self._again_at = now + min(_LONGEST_PAUSE_S, 2.0**self._failed)
            line = str(error)
        new, self._told = line != self._told, line
        return line if new else ""

    def _begin(self, now: float) -> None:
        node = self._api.patch(None)
        self._cloud = self._settings.cloud
        if self._cloud == "auto":
            provider = str((node.get("spec") or {}).get("providerID") or "")
            self._cloud = next((c for prefix, c in PROVIDERS.items() if provider.startswith(prefix)), "none")
        cloud = CLOUDS.get(self._cloud)
        sources = {} if cloud is None else dict(cloud(self._metadata).sources)
        if self._settings.reboot_file:
            sources[REBOOT] = self._reboot
        before = (node.get("metadata") or {}).get("annotations") or {}
        self._known = {k: one for k, one in _read(before.get(KEY, ""), now).items() if k in sources}
        self._sources, self._failed, self._again_at = sources, 0, 0.0

    def _look(self, now: float, sources: dict[str, Read]) -> None:
        """Sources that cannot be read keep what was known of them."""
        silent = False
        for name, source in sources.items():
            if silent and name != REBOOT:
                continue
            try:
                found = source(now, self._known.get(name))
            except MetadataError as error:
                since, _ = self._failing.get(name, (now, ""))
                self._failing[name] = since, str(error)
                silent = silent or isinstance(error, SilentError)
                continue
            self._failing.pop(name, None)
            self._known.pop(name, None)
            if found is not None:
                self._known[name] = found

    def _write(self, now: float) -> str:
        """The annotation, when it was written."""
        state: dict[str, Any] = {
            "notices": {k: {"kind": n.kind, "what": n.what, "at": _rfc3339(n.at)} for k, n in self._known.items()}
        }
        # One of them will do, and a new wording of the same problem is no news.
        failing = next((name for name, (since, _) in self._failing.items() if now - since >= PROBLEM_S), "")
        news = state["notices"], failing
        if failing:
            words = f"{failing}: {self._failing[failing][1]}"[:200]
            state["problem"] = "".join(c if " " <= c <= "~" else "?" for c in words)
        if now < self._again_at or (news == self._written and now - self._written_at < self._heartbeat_s):
            return ""
        text = json.dumps({"cloud": self._cloud, "checked": _rfc3339(now), **state})
        self._api.patch(text)
        self._written, self._written_at, self._failed = news, now, 0
        return f"{self._settings.node}: {json.dumps({'cloud': self._cloud, **state})}"

    def _reboot(self, now: float, before: Notice | None) -> Notice | None:
        if not os.path.exists(self._settings.reboot_file):  # noqa: PTH110 - pathlib costs a megabyte
            return None
        return before or Notice("tell", "a reboot is required", int(now))


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _read(text: str, now: float) -> dict[str, Notice]:
    """What an agent before this one wrote, without what is long over."""
    try:
        notices = json.loads(text)["notices"].items()
        found = {k: Notice(n["kind"], n["what"], int(datetime.fromisoformat(n["at"]).timestamp())) for k, n in notices}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return {}
    return {k: one for k, one in found.items() if one.kind != "interrupt" or one.at > now - _OVER_S}


def settings_of(environment: Mapping[str, str]) -> Settings:
    """Raises ValueError with what is wrong, and where."""
    read = {name: environment.get(variable, "") for name, variable in VARIABLES.items()}
    found = Settings(read["node"], read["cloud"] or "auto")
    if not found.node:
        raise ValueError(f"{VARIABLES['node']} is not set: name this machine's Node")
    if found.cloud not in {"auto", "none", *CLOUDS}:
        raise ValueError(f"{VARIABLES['cloud']} is {found.cloud!r}: auto, none, {', '.join(CLOUDS)}")
    try:
        every_s = float(read["every_s"] or found.every_s)
    except ValueError:
        every_s = 0.0
    if not 1.0 <= every_s <= 60.0:
        raise ValueError(f"{VARIABLES['every_s']} is {read['every_s']!r}: seconds, 1 to 60")
    file = read["reboot_file"] or found.reboot_file
    return found._replace(
        every_s=every_s, reboot_file="" if file == "none" else file, account=read["account"] or found.account
    )


def watch(settings: Settings, environment: Mapping[str, str]) -> None:
    """For ever, until SIGTERM."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not port.isdecimal():
        raise ValueError("KUBERNETES_SERVICE_HOST is not set: the agent runs in a pod (mooring manifests --agent)")
    # The first process of a container has no default handlers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    agent = Agent(settings, NodeApi(settings, host, int(port)), Metadata())
    while True:
        line = agent.turn()
        if line:
            _say(line)
        time.sleep(settings.every_s)


def _say(line: str) -> None:
    sys.stderr.write(f"mooring agent: {line}\n")
    sys.stderr.flush()


def main() -> None:
    try:
        watch(settings_of(os.environ), os.environ)
    except ValueError as error:
        _say(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
