"""etcd over its JSON gateway (on by default from 3.4 on; its 64-bit numbers are strings).

Asked of each member: `POST /v3/maintenance/status` (who leads, how far it has applied) and `GET /health`, which reads
through the quorum; of one that answers: `POST /v3/cluster/member/list`. Leadership is handed on by
`POST /v3/maintenance/transfer-leadership` to the member that leads; any other refuses it, and nothing has changed.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from mooring.clients.leaders.ask import Ask, decoded
from mooring.clients.ports import PortError, RefusedError, UnansweredError
from mooring.core.model.leaders import LeaderMember, LeaderView

#: So many entries behind the leader a member is still in sync: a second or two of a busy cluster.
LAG: Final = 5000
_NOT_LEADER: Final = "not leader"


class _Header(msgspec.Struct):
    cluster_id: int = 0
    member_id: int = 0


class _Status(msgspec.Struct, rename="camel"):
    header: _Header = msgspec.field(default_factory=_Header)
    leader: int = 0
    raft_term: int = 0
    raft_index: int = 0
    raft_applied_index: int = 0
    errors: tuple[str, ...] = ()


class _Member(msgspec.Struct):
    id: int = msgspec.field(default=0, name="ID")
    name: str = ""
    client_urls: tuple[str, ...] = msgspec.field(default=(), name="clientURLs")
    learner: bool = msgspec.field(default=False, name="isLearner")


class _Members(msgspec.Struct):
    members: tuple[_Member, ...] = ()


class Etcd:
    def __init__(self, ask: Ask, addresses: Mapping[str, str]) -> None:
        self._ask, self._addresses = ask, addresses

    async def read(self) -> LeaderView:
        asked = dict(zip(self._addresses, await asyncio.gather(*map(self._status, self._addresses)), strict=True))
        up = {pod: found for pod, found in asked.items() if isinstance(found, _Status)}
        if not up:
            raise UnansweredError(next((str(e) for e in asked.values()), "it has no member to ask"))
        listed = await self._members(up)
        cluster = Counter(status.header.cluster_id for status in up.values()).most_common(1)[0][0]
        mine = {pod: status for pod, status in up.items() if status.header.cluster_id == cluster}
        newest = max(mine.values(), key=lambda status: status.raft_term)
        leader, term = newest.leader, newest.raft_term
        index = max(status.raft_index for status in mine.values())
        members = tuple(self._member(one, asked, mine, leader, term, index) for one in listed)
        voters = sum(not one.learner for one in listed)
        return LeaderView(
            life=f"{cluster:x}/{term}/{leader:x}",
            members=members,
            needs=voters // 2 + 1,
            busy="" if leader and any(m.leaders for m in members) else "etcd has no leader just now",
        )

    async def move_off(self, member: str, to: str) -> None:
        base = self._addresses[member]
        listed = await self._members({member: None, **dict.fromkeys(self._addresses)})
        target = next((one.id for one in listed if self._pod(one) == to), 0)
        if not target:
            raise RefusedError(f"etcd lists no member {to}")
        answer = await self._ask("POST", f"{base}/v3/maintenance/transfer-leadership", {"targetID": str(target)})
        if answer.status != 200 and _NOT_LEADER not in answer.said:
            raise RefusedError(f"etcd does not hand its leadership on: {answer.status} {answer.said}")

    async def release(self, member: str) -> None:
        """Nothing was held."""

    async def _status(self, pod: str) -> _Status | PortError:
        base = self._addresses[pod]
        try:
            status = decoded(await self._ask("POST", f"{base}/v3/maintenance/status", {}), _Status, base)
            answer = await self._ask("GET", f"{base}/health", None)
        except PortError as error:
            return error
        if answer.status != 200:
            status.errors = (*status.errors, f"/health answers {answer.status}: {answer.said}")
        return status

    async def _members(self, pods: Mapping[str, object]) -> tuple[_Member, ...]:
        failed: PortError | None = None
        for pod in pods:
            base = self._addresses[pod]
            try:
                answer = await self._ask("POST", f"{base}/v3/cluster/member/list", {})
                return decoded(answer, _Members, base).members
            except PortError as error:
                failed = error
        raise failed or UnansweredError("it has no member to ask")

    def _pod(self, one: _Member) -> str:
        """Members are mostly named by their pods; else their client address is their pod's."""
        if one.name in self._addresses:
            return one.name
        try:
            hosts = [(urlsplit(url).hostname or "").partition(".")[0] for url in one.client_urls]
        except ValueError:
            hosts = []
        return next((host for host in hosts if host in self._addresses), one.name)

    def _member(
        self,
        one: _Member,
        asked: Mapping[str, _Status | PortError],
        mine: Mapping[str, _Status],
        leader: int,
        term: int,
        index: int,
    ) -> LeaderMember:
        pod = self._pod(one)
        status, found = mine.get(pod), asked.get(pod)
        if status is None:
            detail = "it was not asked" if found is None else str(found) if isinstance(found, PortError) else ""
            return LeaderMember(pod=pod, detail=detail or "it answers for another cluster", may_lead=not one.learner)
        if status.header.member_id != one.id:
            return LeaderMember(pod=pod, detail="another member answers at its address", may_lead=not one.learner)
        lag = max(0, index - status.raft_applied_index)
        agrees = status.leader == leader and status.raft_term == term
        said = "; ".join(status.errors) or ("" if agrees else "it follows another leader")
        return LeaderMember(
            pod=pod,
            leaders=int(one.id == leader),
            healthy=not status.errors and agrees,
            in_sync=lag <= LAG,
            may_lead=not one.learner,
            detail=said or (f"{lag} entries behind" if lag > LAG else ""),
        )
