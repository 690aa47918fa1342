"""A recording goes on from a moment with other settings: the sandbox is put into the state of the world, and a new
Mooring leads.

What had begun is read back from its marks, as after any restart; what only waited is proposed again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from mooring.capabilities.registry import serving
from mooring.core.engine.engine import Engine
from mooring.core.engine.history import HistoryEntry
from mooring.process.settings.config import Config
from mooring.rehearse.play import LOAD_SEED
from mooring.rehearse.snapshot.load import load, schedulers_of_members
from mooring.rehearse.snapshot.schema import Snapshot
from mooring.sandbox.clock import run_virtual
from mooring.sim.rig import Rig
from mooring.sim.scenarios.home import ask_mooring

#: What happens to operators, as the history says it.
VERBS: Final = ("queued", "promoted", "resumed", "finished", "failed", "canceled", "timeout")


class Story(msgspec.Struct):
    """What happened to operators, in order."""

    entries: list[HistoryEntry] = []

    def hear(self, entry: HistoryEntry) -> None:
        if entry.verb in VERBS:
            self.entries.append(entry)

    def follow(self, engine: Engine) -> None:
        engine.history.listeners.append(self.hear)

    def counts(self) -> dict[str, int]:
        """By source and verb."""
        found = Counter(f"{one.source} {one.verb}" for one in self.entries)
        return dict(sorted(found.items()))


def go_on(snapshot: Snapshot, config: Config, for_s: float, say: Callable[[str], None]) -> Story:
    loaded, story = load(snapshot, LOAD_SEED), Story()
    config = msgspec.structs.replace(config, namespace=snapshot.namespace, pd={}, webhook_url="")
    rig = Rig(seed=LOAD_SEED, config=config, cluster=loaded.cluster)
    if serving("extender", config.on()):
        for scheduler in schedulers_of_members(snapshot):
            ask_mooring(rig, scheduler=scheduler)
    for remark in (*snapshot.remarks, *loaded.remarks):
        say(remark)

    async def whole() -> None:
        story.follow(rig.start().engine)
        await rig.until(rig.leads)
        await rig.sleep(for_s)
        for name in list(rig.replicas):
            rig.kill(name)
        await asyncio.sleep(0)

    run_virtual(whole, rig.cluster.timeline)
    return story
