"""PostgreSQL under Patroni, over its REST API.

Asked: `GET /cluster` of any member (who leads, states, lag, timeline, whether it is paused), and `GET /health` of each,
since a member that was killed stays in Patroni's store as running until its time is over. Leadership is handed on by
`POST /switchover` with the leader and the candidate, so that a switchover of somebody else midway makes it refuse.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mooring.clients.leaders.ask import Ask, decoded
from mooring.clients.ports import PortError, RefusedError, UnansweredError
from mooring.core.model.leaders import LeaderMember, LeaderView

#: Bytes of WAL behind the leader that count as in sync: Patroni's own `maximum_lag_on_failover`.
LAG: Final = 1 << 20
_LEADING: Final = frozenset({"leader", "master", "primary", "standby_leader"})
_SYNC: Final = frozenset({"sync_standby", "quorum_standby"})
_RUNNING: Final = frozenset({"running", "streaming", "in archive recovery"})


class _Member(msgspec.Struct):
    name: str = ""
    role: str = ""
    state: str = ""
    timeline: int | str | None = None
    #: Bytes, or "unknown".
    lag: int | str | None = None
    tags: dict[str, Any] = {}


class _Cluster(msgspec.Struct):
    members: tuple[_Member, ...] = ()
    scope: str = ""
    pause: bool = False
    scheduled_switchover: dict[str, Any] | None = None


class Patroni:
    def __init__(self, ask: Ask, addresses: Mapping[str, str]) -> None:
        self._ask, self._addresses = ask, addresses

    async def read(self) -> LeaderView:
        cluster = await self._cluster()
        up = dict(zip(self._addresses, await asyncio.gather(*map(self._answers, self._addresses)), strict=True))
        leader = next((m for m in cluster.members if m.role in _LEADING), None)
        synchronous = any(m.role in _SYNC for m in cluster.members)
        members = tuple(_member(m, leader, up.get(m.name, ""), synchronous=synchronous) for m in cluster.members)
        return LeaderView(
            life=f"{cluster.scope}/{leader.name if leader else ''}/{leader.timeline if leader else ''}",
            members=members,
            busy=_busy(cluster, leader),
        )

    async def move_off(self, member: str, to: str) -> None:
        url = f"{self._addresses[member]}/switchover"
        answer = await self._ask("POST", url, {"leader": member, "candidate": to})
        if answer.status != 200:
            raise RefusedError(f"Patroni does not switch over: {answer.status} {answer.said}")

    async def release(self, member: str) -> None:
        """Nothing was held."""

    async def _cluster(self) -> _Cluster:
        failed: PortError | None = None
        for base in dict.fromkeys(self._addresses.values()):
            try:
                return decoded(await self._ask("GET", f"{base}/cluster", None), _Cluster, base)
            except PortError as error:
                failed = error
        raise failed or UnansweredError("it has no member to ask")

    async def _answers(self, pod: str) -> str:
        """Why this member does not say itself that its PostgreSQL runs; "": it does, or has no address of its own."""
        base = self._addresses[pod]
        if list(self._addresses.values()).count(base) > 1:
            return ""
        try:
            answer = await self._ask("GET", f"{base}/health", None)
        except PortError as error:
            return str(error)
        return "" if answer.status == 200 else f"/health answers {answer.status}"


def _busy(cluster: _Cluster, leader: _Member | None) -> str:
    if cluster.pause:
        return "Patroni is paused: patronictl resume ends it"
    if cluster.scheduled_switchover:
        return "a switchover is scheduled in Patroni"
    return "" if leader is not None else "Patroni has no leader just now"


def _member(m: _Member, leader: _Member | None, silent: str, *, synchronous: bool) -> LeaderMember:
    leads, running = m.role in _LEADING, m.state in _RUNNING
    same = leader is not None and m.timeline == leader.timeline
    lag = 0 if leads else m.lag
    in_sync = leads or (same and isinstance(lag, int) and lag <= LAG)
    behind = "" if in_sync else f"lag {lag}, timeline {m.timeline}"
    words = silent or (behind if running else f"state {m.state}")
    nofailover = bool(m.tags.get("nofailover")) or m.tags.get("failover_priority") == 0
    return LeaderMember(
        pod=m.name,
        leaders=int(leads),
        healthy=running and not silent,
        in_sync=in_sync,
        may_lead=leads or (not nofailover and (not synchronous or m.role in _SYNC)),
        detail=words,
    )
