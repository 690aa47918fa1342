"""Stand-ins for systems with leaders: a StatefulSet with `mooring.dev/leaders` is an etcd, a Patroni or a hook.

A member lives with its pod: it runs once the pod is Ready, and is gone with it. A leader that goes leaves the system
without one until an election; that is what a careful restart avoids, so it is written down (`interruptions`). They
answer the requests that the drivers make, in the form of the real ones (tests/clients/leaders compares them).
"""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from mooring.clients.ports import Json, UnansweredError
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LEADERS
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline, TimelineClock
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import annotations_of, key_of
from mooring_lab.cluster.controllers.workloads.ownership import controller_of

#: From the loss of a leader to the next one, and from a start to being in sync.
ELECTION_S: Final = {"etcd": 1.5, "patroni": 30.0, "hook": 10.0}
CATCH_UP_S: Final = 4.0
#: How far a member that was away is behind at first; what the leader writes each second.
BEHIND: Final = 40_000_000
RATE: Final = 200
Answer = tuple[int, bytes]


class LedSystem:
    def __init__(self, timeline: Timeline, driver: str, key: tuple[str, str]) -> None:
        self._timeline, self.driver, self.key = timeline, driver, key
        #: Members in the order in which they joined → since when they run; None: they do not.
        self.members: dict[str, float | None] = {}
        self.leader = ""
        self.term = 1
        #: Since when that is so.
        self.led_since = timeline.monotonic()
        #: When a leader went with its pod: these seconds nobody could write.
        self.interruptions: list[tuple[float, str]] = []
        #: How often leadership was handed on because somebody asked for it.
        self.moves = 0
        # What a scenario may turn: members that do not answer, a paused Patroni, one that takes leadership back, and a
        # system that refuses to hand it on.
        self.silent: set[str] = set()
        self.paused = False
        self.returns_to = ""
        self.refuses = False
        self.stayed: list[str] = []

    # ── What its pods do ──────────────────────────────────────────────────────────────────────────────────────

    def started(self, name: str) -> None:
        first = name not in self.members
        self.members[name] = self._timeline.monotonic() - (CATCH_UP_S if first else 0.0)
        if not self.leader:
            self._elect()

    def stopped(self, name: str, *, for_good: bool = False) -> None:
        """`for_good`: it was scaled in, and is taken off the list, as its preStop hook does."""
        self.members[name] = None
        if for_good:
            del self.members[name]
        if name == self.leader:
            self.interruptions.append((self._timeline.monotonic(), name))
            self.leader = ""
            self._timeline.after(ELECTION_S[self.driver], self._elect)

    def _elect(self) -> None:
        able = [n for n in self.members if self.lag(n) == 0]
        if not self.leader and able and len(self.running) > len(self.members) // 2:
            self._led_by(able[0])

    @property
    def running(self) -> list[str]:
        return [name for name, since in self.members.items() if since is not None]

    def lag(self, name: str) -> int | None:
        """None: it does not run."""
        since = self.members.get(name)
        if since is None:
            return None
        left = CATCH_UP_S - (self._timeline.monotonic() - since)
        return int(BEHIND * left / CATCH_UP_S) if left > 0 and name != self.leader else 0

    def move(self, to: str) -> None:
        self._led_by(to)
        self.moves += 1
        if self.returns_to and to != self.returns_to:
            self._timeline.after(1.0, self._return)

    def _return(self) -> None:
        if self.returns_to in self.running:
            self._led_by(self.returns_to)

    def _led_by(self, name: str) -> None:
        self.leader, self.term, self.led_since = name, self.term + 1, self._timeline.monotonic()

    # ── What it answers ───────────────────────────────────────────────────────────────────────────────────────

    def answer(self, member: str, method: str, path: str, body: Any) -> Answer:
        handlers: dict[str, Callable[[str, str, str, Any], Answer]] = {
            "etcd": self._etcd,
            "patroni": self._patroni,
            "hook": self._hook,
        }
        if self.driver != "hook" and (member in self.silent or member not in self.running):
            raise UnansweredError(f"{member} did not answer: connection refused")
        return handlers[self.driver](member, method, path, body)

    def _id(self, name: str) -> int:
        return 0x1000 + list(self.members).index(name) if name in self.members else 0

    def _etcd(self, member: str, method: str, path: str, body: Any) -> Answer:
        index = 1000 + int(self._timeline.monotonic() * RATE)
        header = {"cluster_id": str(0xC0FFEE), "member_id": str(self._id(member)), "raft_term": str(self.term)}
        match method, path:
            case "POST", "/v3/maintenance/status":
                applied = max(0, index - (self.lag(member) or 0))
                status = {"header": header, "version": "3.6.16", "dbSize": "20480", "raftIndex": str(index)}
                led = {"leader": str(self._id(self.leader))} if self.leader else {}
                return _json({**status, **led, "raftTerm": str(self.term), "raftAppliedIndex": str(applied)})
            case "GET", "/health":
                return _json({"health": "true", "reason": ""}) if self.leader else (503, b'{"health":"false"}')
            case "POST", "/v3/cluster/member/list" if self.leader:
                return _json({"header": header, "members": [{"ID": str(self._id(n)), "name": n} for n in self.members]})
            case "POST", "/v3/maintenance/transfer-leadership":
                to = next((n for n in self.members if str(self._id(n)) == body.get("targetID")), "")
                if member != self.leader:
                    return 400, b'{"code":9,"message":"etcdserver: not leader","details":[]}'
                if self.refuses or to not in self.running:
                    return 503, b'{"code":14,"message":"etcdserver: request timed out, leader transfer took too long"}'
                self.move(to)
                return 200, b"{}"
        return 503, b'{"code":14,"message":"etcdserver: no leader"}'

    def _patroni(self, member: str, method: str, path: str, body: Any) -> Answer:
        match method, path:
            case "GET", "/health":
                return 200, b"{}"
            case "GET", "/cluster":
                found: Json = {"scope": self.key[1], "members": [self._listed(n) for n in self.members]}
                return _json({**found, "pause": True} if self.paused else found)
            case "POST", "/switchover":
                if self.refuses or body.get("leader") != self.leader or self.lag(body.get("candidate", "")) != 0:
                    return 412, b"leader name does not match"
                self.move(body["candidate"])
                return 200, f'Successfully switched over to "{self.leader}"'.encode()
        return 404, b""

    def _listed(self, name: str) -> Json:
        lag, role = self.lag(name), "leader" if name == self.leader else "replica"
        state = "stopped" if lag is None else "running" if name == self.leader else "streaming"
        found: Json = {"name": name, "role": role, "state": state, "timeline": self.term}
        return found if role == "leader" else {**found, "lag": "unknown" if lag is None else lag}

    def _hook(self, member: str, method: str, path: str, body: Any) -> Answer:
        name = str(body.get("member", ""))
        if name in self.silent or method != "POST":
            raise UnansweredError(f"the hook did not answer for {name}")
        heir = next((n for n in self.running if n != name and self.lag(n) == 0), "")
        if body.get("ask") == "leave" and name == self.leader and heir and not self.refuses:
            self.move(heir)
        if body.get("ask") == "stay":
            self.stayed.append(name)
        lag = self.lag(name)
        said = {"leaders": int(name == self.leader), "healthy": lag is not None, "in_sync": lag == 0}
        return _json({**said, "may_go": bool(heir), "message": "", "life": str(self.term)})


def _json(found: Json) -> Answer:
    return 200, msgspec.json.encode(found)


class LedSystems:
    """All of a cluster, following its pods."""

    def __init__(self, timeline: Timeline, store: ObjectStore) -> None:
        self._timeline, self._store = timeline, store
        self._clock = TimelineClock(timeline)
        self.systems: dict[tuple[str, str], LedSystem] = {}
        self._uids: dict[tuple[str, str], str] = {}
        store.subscribe(Kind.POD, self._on_pod)

    def __getitem__(self, key: tuple[str, str]) -> LedSystem:
        return self.systems[key]

    async def ask(self, method: str, url: str, body: Any) -> Answer:
        """A Service's address, as a cluster's DNS has it: `<pod>.<set>.<ns>.svc` or `<service>.<ns>.svc`."""
        await self._clock.sleep(0.005)
        parts = urlsplit(url)
        names = (parts.hostname or "").removesuffix(".svc").split(".")
        member, namespace = names[0], names[-1]
        system = self.systems.get((namespace, names[1])) if len(names) == 3 else None
        if system is None:  # a Service in front of several: by the member that is asked about
            asked = str((body or {}).get("member", ""))
            system = next((s for k, s in self.systems.items() if k[0] == namespace and asked in s.members), None)
        if system is None:
            raise UnansweredError(f"{parts.hostname} did not answer: no such host")
        return system.answer(member, method, parts.path, body)

    def _on_pod(self, kind: str, old: Json | None, new: Json | None) -> None:
        pod = new or old
        owner = controller_of(pod) if pod is not None else None
        if pod is None or owner is None or owner["kind"] != Kind.STATEFUL_SET:
            return
        key = (pod["metadata"]["namespace"], owner["name"])
        parent = self._store.find(Kind.STATEFUL_SET, *key)
        driver = annotations_of(parent).get(LEADERS, "") if parent is not None else ""
        system = self.systems.get(key)
        if system is None and driver in ELECTION_S:
            system = self.systems[key] = LedSystem(self._timeline, driver, key)
        if system is None:
            return
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        gone = kind == "DELETED" or podstate.terminal(pod)
        if not gone and podstate.ready(pod) and self._uids.get(key_of(pod)) != uid:
            self._uids[key_of(pod)] = uid
            system.started(name)
        elif gone and self._uids.get(key_of(pod)) == uid:
            del self._uids[key_of(pod)]
            wanted = int(parent["spec"].get("replicas", 1)) if parent is not None else 0
            system.stopped(name, for_good=int(name.rpartition("-")[2]) >= wanted)
