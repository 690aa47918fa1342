"""`mooring maintain`: empty nodes, run a command for each, and let them take pods again when they are back.

    planned ──► drain ──empty──► command ──exit 0──► return ──Ready again──► done
                  └─────────────────┴── too late, exit ≠ 0 ──┴──► failed: no other node begins, this one stays cordoned

Where a node stands is the annotation `mooring.dev/maintain` on it, so the same command goes on after Ctrl-C, on any
machine. Emptying is the running Mooring's work, asked for as `mooring drain` does. One session works at a time: it says
on its nodes that it lives, and writes with their resourceVersion.
"""

import asyncio
import hashlib
import json
import secrets
import shutil
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

from cyclopts import App, Parameter

from mooring.cli.connect import connect
from mooring.cli.drain import Selector, must_be_on, request
from mooring.cli.output import Format, Output, Whole, note, print_data
from mooring.cli.pause import seconds, user
from mooring.cli.server import HERE, Reach, ask
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from mooring.capabilities.drain.nodes import Maintenance

app = App(name="maintain")

LOOK_S: Final = 2.0
#: A session that has not said for so long that it lives does not.
_ALIVE_S: Final = 90.0
_BEAT_S: Final = 30.0
#: A command that ends may have begun a reboot: its kubelet reports once more so long after it, or the node stays Ready
#: for longer than the control plane takes to notice that it does not (50 s).
_REPORTS_S: Final = 15.0
_STAYS_READY_S: Final = 75.0
#: A running Mooring lifts its cordon within.
_LIFTED_S: Final = 60.0
_TRIES: Final = 20

#: The exit code of a command, run for one node; `beat` is awaited while it runs.
RunCommand = Callable[[list[str], Callable[[], Awaitable[None]]], Awaitable[int]]


@app.default
def maintain(
    command: Annotated[tuple[str, ...], Parameter(help="Behind --; {node} and {address} are replaced.")] = (),
    /,
    *,
    selector: Selector = "",
    state: Annotated[str, Parameter(help="Nodes whose machine the registry has in this state, with fleet on.")] = "",
    at_most: Annotated[Whole, Parameter(help="So many nodes at once.")] = 1,
    timeout: Annotated[str, Parameter(help="What a node may take to be empty, and to be back.")] = "1h",
    reboots: Annotated[bool, Parameter(negative="", help="A node is back only with a new boot ID.")] = False,
    cancel: Annotated[bool, Parameter(negative="", help="Call it off: what it cordoned takes pods again.")] = False,
    reach: Reach = HERE,
    output: Output = Format.TABLE,
) -> int:
    """Empty nodes one after another, run a command for each, wait until it is Ready again, uncordon it.

    Stops at the first node whose command fails or that does not return; it stays cordoned. The same command goes on
    where it stopped, also after Ctrl-C: a command that was interrupted runs again, unless its node has rebooted.

    Example: mooring maintain -l pool=old --reboots -- ssh {address} sudo reboot

    Example: mooring maintain --state unhealthy --at-most 3 -- ./update-firmware {node}

    Example: mooring maintain -l pool=old --cancel
    """
    if bool(command) == cancel:
        raise UserError("write the command behind --, e.g. mooring maintain -l pool=old -- ssh {address} sudo reboot")
    if state and cancel:
        raise UserError("--cancel: by -l, or alone for every node that is maintained; states have changed since")
    if not (selector or state or cancel):
        raise UserError("which nodes? -l pool=old, or --state unhealthy for machines that the registry calls so")
    if at_most < 1:
        raise UserError(f"--at-most {at_most}: must be 1 or more")
    if command and shutil.which(command[0]) is None:
        raise UserError(f"{command[0]}: no such command here")
    within_s = seconds(timeout, "--timeout")
    meant = f"{selector} --state {state.lower()}" if state else selector
    if not cancel:
        must_be_on(reach)

    async def whole() -> int:
        async with connect(reach.kubeconfig, reach.context) as api:
            nodes = await chosen(api, selector)
            if cancel:
                return await call_off(api, nodes)
            if state:
                nodes = of_machines(nodes, in_state(ask(reach, "/api/v1/fleet"), state), run_id(meant, command))
            rows = lambda: asyncio.to_thread(lambda: ask(reach, "/api/v1/drain")["nodes"])  # noqa: E731
            run = Run(api, rows, run_command, meant, command, within_s=within_s, reboots=reboots)
            return await run.whole(nodes, at_most, output)

    return asyncio.run(whole())


async def chosen(api: Any, selector: str) -> list[Any]:
    """The nodes with these labels, by name."""
    found = await api.raw("GET", f"/api/v1/nodes?labelSelector={quote(selector)}")
    if not found["items"]:
        raise UserError(f"-l {selector}: no node has these labels")
    return sorted(found["items"], key=lambda node: str(node["metadata"]["name"]))


def in_state(fleet: Any, state: str) -> frozenset[str]:
    """Nodes whose machine is in this state, as the running Mooring has it from the registry."""
    from mooring.core.model.machine import MachineState

    known = {one.value.lower(): one.value for one in MachineState if one is not MachineState.HEALTHY}
    if state.lower() not in known:
        raise UserError(f"--state {state}: must be one of {', '.join(known)}")
    if not fleet["on"] or fleet["registry"]["error"]:
        why = fleet["registry"]["error"] or "fleet is off (mooring run --features fleet=true)"
        raise UserError(f"--state {state}: the states of machines are not known: {why}", Exit.UNREACHABLE)
    return frozenset(fleet["machines"].get(known[state.lower()], ()))


def of_machines(nodes: list[Any], names: frozenset[str], run: str) -> list[Any]:
    """Those nodes, and those that this very run has begun, whatever their machines' state is by now."""
    from mooring.capabilities.drain.nodes import maintenance_of

    begun = {
        n["metadata"]["name"] for n in nodes if (s := maintenance_of(_annotations(n))) is not None and s.run == run
    }
    found = [n for n in nodes if n["metadata"]["name"] in names | begun]
    if not found:
        raise UserError("no node's machine is in this state", Exit.CHECK_FAILED)
    return found


def run_id(meant: str, command: Iterable[str]) -> str:
    """The same nodes and the same command are the same run."""
    return hashlib.sha256(json.dumps([meant, list(command)]).encode()).hexdigest()[:12]


async def call_off(api: Any, nodes: list[Any]) -> int:
    from mooring.capabilities.drain.nodes import DRAIN, MAINTAIN, maintenance_of
    from mooring.core.model.kinds import Kind

    count = 0
    for node in nodes:
        metadata, state = node["metadata"], maintenance_of(_annotations(node))
        if MAINTAIN not in _annotations(node):
            continue
        gone = {MAINTAIN: None, **({DRAIN: None} if state is not None and state.asked else {})}
        await api.patch(Kind.NODE, "", metadata["name"], {"metadata": {"uid": metadata["uid"], "annotations": gone}})
        count += 1
    note(f"the maintenance of {count} nodes is called off; a command that runs is not ended by this")
    return Exit.DONE


async def run_command(argv: list[str], beat: Callable[[], Awaitable[None]]) -> int:
    """What it prints goes to stderr: stdout is for data."""
    process = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr)
    try:
        while process.returncode is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), LOOK_S)
            await beat()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    return process.returncode


class _StoppedError(Exception):
    """This node goes no further; the words say why."""


class Run:
    """One session. `rows`: what the running Mooring reports of nodes that are drained; `meant`: which are chosen."""

    def __init__(
        self,
        api: Any,
        rows: Callable[[], Awaitable[list[Any]]],
        run: RunCommand,
        meant: str,
        command: Iterable[str],
        *,
        within_s: float = 3600.0,
        reboots: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._api, self._rows, self._run, self._now = api, rows, run, now
        self._command, self._within_s, self._reboots = list(command), within_s, reboots
        self._id = run_id(meant, self._command)
        self._session = secrets.token_hex(4)
        self._states: dict[str, Maintenance] = {}
        #: Nodes that say that this session lives.
        self._held: set[str] = set()
        self._failed: dict[str, str] = {}

    async def whole(self, nodes: list[Any], at_most: int, output: Format = Format.TABLE) -> int:
        todo = await self._planned(nodes)
        left = len(todo)
        note(f"{left} of {len(self._states)} nodes to maintain, {at_most} at a time")
        try:
            await asyncio.gather(*(self._work(todo) for _ in range(min(at_most, left))))
        except asyncio.CancelledError:
            note("stopped: nodes that were begun stay cordoned. The same command goes on; to end it: --cancel")
            raise
        finally:
            for name in sorted(self._held):
                with suppress(Exception):
                    await self._save(name, seen="")
        if not self._failed:
            for name in sorted(self._states):
                await self._save(name, clear=True)
            note(f"{len(self._states)} nodes are maintained")
        elif todo:
            note(f"{len(todo)} nodes were not begun. Once it is put right, the same command goes on")
        if output.data:
            states = sorted(self._states.items())
            print_data(
                output,
                {"nodes": [{"node": n, "state": str(s.step), "detail": self._failed.get(n, "")} for n, s in states]},
            )
        return Exit.CHECK_FAILED if self._failed else Exit.DONE

    async def _planned(self, nodes: list[Any]) -> deque[str]:
        """Every node says that it is part of the run; those that were begun come first."""
        from mooring.capabilities.drain.nodes import Maintenance, maintenance_of
        from mooring.core.model.times import moment, rfc3339

        new = Maintenance(run=self._id, by=user(), since=rfc3339(self._now()))
        for node in nodes:
            name, state = node["metadata"]["name"], maintenance_of(_annotations(node))
            if state is not None and state.run != self._id:
                words = f"{name} is maintained by another command of {state.by or 'somebody'} since {state.since}"
                raise UserError(f"{words}; let that end, or call it off with --cancel", Exit.REFUSED)
            if state is not None and (at := moment(state.seen)) is not None and self._now() < at + _ALIVE_S:
                words = f"the same command runs elsewhere: it was at {name} {self._now() - at:.0f} s ago"
                raise UserError(words, Exit.REFUSED)
            self._states[name] = state or new
        for name, state in self._states.items():
            if state is new:
                await self._save(name)
        left = [(state.step == "planned", name) for name, state in self._states.items() if state.step != "done"]
        return deque(name for _, name in sorted(left))

    async def _work(self, todo: deque[str]) -> None:
        while todo and not self._failed:
            name = todo.popleft()
            try:
                await self._maintained(name)
            except _StoppedError as why:
                self._failed[name] = str(why)
                note(f"{name}: {why}. It stays cordoned")
                with suppress(_StoppedError):
                    await self._save(name, step="failed", seen="")
                self._held.discard(name)

    async def _maintained(self, name: str) -> None:
        from mooring.core.model.times import rfc3339

        state = self._states[name]
        node = await self._node(name)
        rebooted = bool(state.boot) and node is not None and _boot(node) not in {"", state.boot}
        if state.step != "return" and not (state.step == "command" and rebooted):
            node = await self._emptied(name)
            await self._save(name, step="command", boot=_boot(node))
            note(f"{name} is empty: runs the command")
            addresses = node["status"].get("addresses") or ()
            address = next((a["address"] for a in addresses if a["type"] == "InternalIP"), name)
            argv = [one.replace("{node}", name).replace("{address}", address) for one in self._command]
            code = await self._run(argv, lambda: self._beat(name))
            if code != 0:
                raise _StoppedError(f"the command ended with {code}")
            await self._save(name, step="return", ended=rfc3339(self._now()))
        await self._returned(name)
        await self._uncordoned(name)
        note(f"{name} is back")

    async def _emptied(self, name: str) -> Any:
        """Drained, as the running Mooring sees it and as the Node says now."""
        from mooring.capabilities.drain.nodes import DRAIN

        node = await self._node(name)
        if node is None:
            raise _StoppedError("its Node is gone")
        asked = self._states[name].asked or DRAIN not in _annotations(node)
        await self._save(name, step="drain", asked=asked, also={DRAIN: request()} if asked else {})
        note(f"{name} is emptied")
        end, row = self._now() + self._within_s, dict[str, Any]()
        while self._now() < end:
            row = next((one for one in await self._rows() if one["node"] == name), {})
            node = await self._node(name)
            if node is None or DRAIN not in _annotations(node):
                raise _StoppedError("its drain was called off by others")
            if row.get("state") == "drained" and node["spec"].get("unschedulable"):
                return node
            await self._beat(name)
            await asyncio.sleep(LOOK_S)
        kept = next((f"{b['pod']}: {b['detail']}; {b['to_type']}" for b in row.get("blocked", ())), "see mooring why")
        raise _StoppedError(f"not empty after {self._within_s:.0f} s, {row.get('pods_left', '?')} pods left: {kept}")

    async def _returned(self, name: str) -> None:
        from mooring.core.model.times import moment

        state, end = self._states[name], self._now() + self._within_s
        ended = moment(state.ended) or self._now()
        ready_at: float | None = None
        while self._now() < end:
            node = await self._node(name)
            ready_at = None if node is None or not _is_ready(node) else ready_at or self._now()
            if node is not None and ready_at is not None:
                fresh = _boot(node) not in {"", state.boot}
                if fresh:
                    return
                reported = await self._reported(name)
                stayed = self._now() - max(ready_at, ended) >= _STAYS_READY_S
                if not self._reboots and (stayed or (reported is not None and reported >= ended + _REPORTS_S)):
                    return
            await self._beat(name)
            await asyncio.sleep(LOOK_S)
        what = "has no new boot ID" if ready_at is not None and self._reboots else "is not Ready"
        raise _StoppedError(f"it did not return within {self._within_s:.0f} s: it {what}")

    async def _uncordoned(self, name: str) -> None:
        from mooring.capabilities.drain.nodes import DRAIN
        from mooring.core.model.marks import CORDONED_BY

        asked = self._states[name].asked
        await self._save(name, step="done", seen="", also={DRAIN: None} if asked else {})
        self._held.discard(name)
        end = self._now() + _LIFTED_S
        while asked and self._now() < end:
            node = await self._node(name)
            if node is None or CORDONED_BY not in _annotations(node):
                break
            await asyncio.sleep(LOOK_S)

    async def _reported(self, name: str) -> float | None:
        """When its kubelet renewed its Lease last; None: there is none that can be read."""
        from mooring.clients.ports import PortError
        from mooring.core.model.kinds import Kind
        from mooring.core.model.times import moment

        try:
            lease = await self._api.get(Kind.LEASE, "kube-node-lease", name)
        except PortError:
            return None
        return moment(str((lease.get("spec") or {}).get("renewTime") or ""))

    async def _node(self, name: str) -> Any:
        from mooring.clients.ports import NotFoundError
        from mooring.core.model.kinds import Kind

        try:
            return await self._api.get(Kind.NODE, "", name)
        except NotFoundError:
            return None

    async def _beat(self, name: str) -> None:
        from mooring.core.model.times import moment

        if self._now() - (moment(self._states[name].seen) or 0.0) >= _BEAT_S:
            await self._save(name)

    async def _save(self, name: str, *, clear: bool = False, also: dict[str, Any] | None = None, **news: Any) -> None:
        """Write where this node stands, if this session still has it."""
        import msgspec

        from mooring.capabilities.drain.nodes import MAINTAIN
        from mooring.clients.ports import ConflictError
        from mooring.core.model.kinds import Kind

        for _ in range(_TRIES):
            node = await self._node(name)
            if node is None:
                if clear:
                    return
                raise _StoppedError("its Node is gone")
            state = self._news(name, node, news)
            value = None if clear else msgspec.json.encode(state).decode()
            version, annotations = node["metadata"]["resourceVersion"], {MAINTAIN: value, **(also or {})}
            try:
                metadata = {"resourceVersion": version, "annotations": annotations}
                await self._api.patch(Kind.NODE, "", name, {"metadata": metadata})
            except ConflictError:
                await asyncio.sleep(0.1)  # its kubelet writes, too
                continue
            self._states[name] = state
            if state.seen:
                self._held.add(name)
            return
        raise _StoppedError("its Node changes faster than it can be written")

    def _news(self, name: str, node: Any, news: dict[str, Any]) -> "Maintenance":
        """What is to be written; refused where others have written it since."""
        import msgspec

        from mooring.capabilities.drain.nodes import maintenance_of
        from mooring.core.model.times import rfc3339

        mine, there = self._states[name], maintenance_of(_annotations(node))
        if there is not None and there.session not in {"", self._session} and mine.session == self._session:
            raise _StoppedError("another session has taken it over")
        if there is None and mine.session == self._session and node["metadata"]["uid"] == mine.uid:
            raise _StoppedError("it was called off")
        told = {"seen": rfc3339(self._now()), "session": self._session, "uid": node["metadata"]["uid"], **news}
        return msgspec.structs.replace(mine, **told)


def _annotations(node: Any) -> dict[str, str]:
    return node["metadata"].get("annotations") or {}


def _boot(node: Any) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("bootID") or "")


def _is_ready(node: Any) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
