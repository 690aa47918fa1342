"""The kill harness: play a scenario, then play it again and end the replica right before and right after every write.

A scenario has three parts: `build` makes the cluster, `act` starts what is to be seen (a person annotates a pod), and
`done` says when it is over. The harness plays it undisturbed once, to learn how many writes it takes and what the end
looks like. Then, for each write and each side of it, it plays the scenario again from the same seed, kills the replica
there, starts another, and compares: the same end state, no disturbing write made twice, nothing left behind.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec

from mooring_lab.stage.rig import Rig


class KillScenario(Protocol):
    """What the harness needs of a scenario. `kinds` of writes that must not happen twice: their first word(s)."""

    name: str
    once: tuple[str, ...]

    def rig(self) -> Rig: ...

    async def build(self, rig: Rig) -> None: ...

    async def act(self, rig: Rig) -> None: ...

    def done(self, rig: Rig) -> bool: ...

    def end_state(self, rig: Rig) -> Any: ...

    def left_overs(self, rig: Rig) -> list[str]: ...


class Ending(msgspec.Struct, frozen=True):
    """How one play ended."""

    killed: str
    writes: tuple[str, ...]
    state: Any
    left_overs: tuple[str, ...]
    broken: tuple[str, ...] = ()


class Deviation(msgspec.Struct, frozen=True):
    """Something that differs from the undisturbed play."""

    killed: str
    what: str


def undisturbed(scenario: KillScenario) -> Ending:
    return _play(scenario, None)


def kill_everywhere(scenario: KillScenario, *, watch: Callable[[Rig], list[str]] | None = None) -> Iterator[Deviation]:
    """One play per write and side; yields what went wrong. `watch` names broken rules while the play goes on."""
    plain = _play(scenario, None, watch)
    yield from (Deviation("never", text) for text in (*plain.left_overs, *plain.broken))
    for number in range(1, len(plain.writes) + 1):
        for side in ("before", "after"):
            ending = _play(scenario, (number, side), watch)
            yield from compare(plain, ending, scenario.once)


def compare(plain: Ending, ending: Ending, once: tuple[str, ...]) -> Iterator[Deviation]:
    if ending.state != plain.state:
        yield Deviation(ending.killed, f"ended as {ending.state}, not as {plain.state}")
    for text in (*ending.left_overs, *ending.broken):
        yield Deviation(ending.killed, text)
    expected = Counter(w for w in plain.writes if w.startswith(once))
    made = Counter(w for w in ending.writes if w.startswith(once))
    for write, times in sorted((made - expected).items()):
        yield Deviation(ending.killed, f"made {times} time(s) too often: {write}")


def _play(
    scenario: KillScenario, kill: tuple[int, str] | None, watch: Callable[[Rig], list[str]] | None = None
) -> Ending:
    rig = scenario.rig()
    killed = f"{kill[1]} write {kill[0]}" if kill else "never"
    broken: list[str] = []

    async def whole(rig: Rig) -> None:
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        before = len(rig.writes)
        if kill is not None:
            rig.kill_at(before + kill[0], kill[1])
        await scenario.act(rig)
        while not scenario.done(rig):
            if not rig.replicas:
                await rig.sleep(1.0)
                rig.start()
            if watch is not None:
                broken.extend(text for text in watch(rig) if text not in broken)
            await rig.until(lambda: scenario.done(rig) or not rig.replicas, limit_s=1800, every_s=0.5)
        if not rig.replicas:  # killed at its very last write: the next one finds nothing left to do
            rig.start()
        await rig.until(lambda: not rig.unsettled(), limit_s=300)
        del rig.writes[:before]

    rig.play(whole)
    return Ending(killed, tuple(rig.writes), scenario.end_state(rig), tuple(scenario.left_overs(rig)), tuple(broken))
