"""The leader runs `fleet.repair.command` for machines that are due (F15): once each, written down before it begins."""

import asyncio
from collections.abc import Mapping

import msgspec
import structlog

from mooring.capabilities.fleet.live import ledger
from mooring.capabilities.fleet.live.policy import RepairPolicy
from mooring.capabilities.fleet.live.repair import NAME, Begun, repairs
from mooring.clients.ports import NotFoundError
from mooring.clients.texts import printable
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import Machine
from mooring.core.model.reasons import Reason
from mooring.process.fleet.export import LeaderTask

log = structlog.get_logger()


class Repairer(LeaderTask[RepairPolicy]):
    what, look_s = "repair", 10.0

    async def step(self, policy: RepairPolicy) -> None:
        """Those that are due, side by side; the next look is once all of them have ended."""
        found = repairs(self._world, policy, self._namespace, self._clock.now())
        for state in ("queued", "running", "watched", "failed"):
            self._gauge("mooring_fleet_repairs", {"state": state}, float(sum(r.state == state for r in found.rows)))
        if found.over:
            await self._put(dict.fromkeys(found.over))
        await asyncio.gather(*(self._repair(one, policy) for one in found.due))

    async def _repair(self, machine: Machine, policy: RepairPolicy) -> None:
        if not self._leads():
            return
        if machine.address in await self._written():
            return  # what is watched may be older than what is written
        begun = Begun(self._clock.now(), machine.serial, machine.rack, machine.role)
        await self._put({machine.address: msgspec.json.encode(begun).decode()})
        words = {"address": machine.address, "serial": machine.serial, "rack": machine.rack, "role": machine.role}
        argv = [_filled(one, words) for one in policy.command]
        try:
            code, said = await self._run(argv, b"", policy.timeout_s)
        except OSError as error:
            code, said = None, f"{argv[0]}: {error.strerror}"
        told = said if code is None else f"exit {code}: {said}"
        done = msgspec.structs.replace(begun, ended=self._clock.now(), code=code, said=printable(told, 300))
        self._recorder.event(
            Kind.NODE,
            "",
            machine.address,
            uid="",
            reason=Reason.REPAIR if code == 0 else Reason.FAILED,
            message=f"repair of machine {machine.serial}: {done.said}",
            warning=code != 0,
        )
        log.info("fleet.repaired" if code == 0 else "fleet.repair-refused", machine=machine.serial, said=done.said)
        await self._put({machine.address: msgspec.json.encode(done).decode()})

    async def _written(self) -> Mapping[str, str]:
        try:
            found: Mapping[str, str] = (await self._api.get(Kind.CONFIG_MAP, self._namespace, NAME)).get("data") or {}
        except NotFoundError:
            return {}
        return found

    async def _put(self, data: Mapping[str, str | None]) -> None:
        try:
            await self._api.patch(Kind.CONFIG_MAP, self._namespace, NAME, {"data": dict(data)})
        except NotFoundError:
            given = {key: text for key, text in data.items() if text is not None}
            await self._api.create(Kind.CONFIG_MAP, dict(ledger.new_object(self._namespace, given, NAME)))


def _filled(text: str, words: Mapping[str, object]) -> str:
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text
