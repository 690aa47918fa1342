"""Any other system, by one HTTP endpoint of the user's own Service: docs/leaders.md has an example of 30 lines.

    POST {"member": "kafka-0", "ask": "status"}   what it leads, whether it is well, whether it may stop now
    POST {"member": "kafka-0", "ask": "leave"}    begin to move what it leads; asked again until nothing is left
    POST {"member": "kafka-0", "ask": "stay"}     it stays after all, and may lead again

Each is answered with the status. What `leave` began holds for this life of the member: one that has started again may
lead, without being told.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from mooring.clients.leaders.ask import Ask, decoded
from mooring.clients.ports import PortError, UnansweredError
from mooring.clients.texts import printable
from mooring.core.model.leaders import LeaderMember, LeaderView


class _Status(msgspec.Struct):
    #: Required: silence is no zero.
    leaders: int
    healthy: bool
    in_sync: bool
    may_go: bool
    message: str = ""
    #: Changes with every election, where the system has such a word.
    life: str = ""


class Hook:
    def __init__(self, ask: Ask, addresses: Mapping[str, str]) -> None:
        self._ask, self._addresses = ask, addresses

    async def read(self) -> LeaderView:
        found = dict(zip(self._addresses, await asyncio.gather(*map(self._status, self._addresses)), strict=True))
        if not any(isinstance(one, _Status) for one in found.values()):
            raise UnansweredError(next((str(e) for e in found.values()), "it has no member to ask about"))
        lives = sorted({one.life for one in found.values() if isinstance(one, _Status)})
        members = tuple(_member(pod, one) for pod, one in found.items())
        return LeaderView(life=printable("|".join(lives)), members=members)

    async def move_off(self, member: str, to: str) -> None:
        """Where to is the system's own decision."""
        await self._say(member, "leave")

    async def release(self, member: str) -> None:
        await self._say(member, "stay")

    async def _status(self, pod: str) -> _Status | PortError:
        try:
            return await self._say(pod, "status")
        except PortError as error:
            return error

    async def _say(self, member: str, ask: str) -> _Status:
        url = self._addresses[member]
        return decoded(await self._ask("POST", url, {"member": member, "ask": ask}), _Status, url)


def _member(pod: str, said: _Status | PortError) -> LeaderMember:
    if isinstance(said, PortError):
        return LeaderMember(pod=pod, detail=str(said), may_go=False)
    return LeaderMember(
        pod=pod,
        leaders=max(0, said.leaders),
        healthy=said.healthy,
        in_sync=said.in_sync,
        may_go=said.may_go,
        detail=printable(said.message),
    )
