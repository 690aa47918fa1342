"""A recording goes on from a moment with other settings: the sandbox is put into the state of the world, and a new
Mooring leads.

What had begun is read back from its marks, as after any restart; what only waited is proposed again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec
import yaml

from mooring.capabilities.registry import names, serving
from mooring.core.engine.engine import Engine
from mooring.core.engine.history import HistoryEntry
from mooring.core.engine.recording.records import Turn
from mooring.core.model.exits import UserError
from mooring.core.model.times import rfc3339_milli
from mooring.process.blackbox.played import Played
from mooring.process.settings.config import Config, file_shape, from_file
from mooring.process.settings.keys import unknown_key
from mooring_lab.cluster.clock import run_virtual
from mooring_lab.rehearse.events.catalog import BadEventError, span
from mooring_lab.rehearse.from_world import snapshot_of
from mooring_lab.rehearse.play import LOAD_SEED
from mooring_lab.rehearse.snapshot.load import load, schedulers_of_members
from mooring_lab.rehearse.snapshot.schema import Snapshot
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.home import ask_mooring

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


class WhatIf(msgspec.Struct, frozen=True):
    """What was recorded from a moment on, and what happens with other settings; for how long both."""

    at: float
    for_s: float
    was: Story
    then: Story

    def rows(self) -> list[list[str]]:
        """How often which source's operators were what: recorded, changed."""
        was, then = self.was.counts(), self.then.counts()
        keys = sorted({*was, *then}, key=lambda key: (key.split()[0], VERBS.index(key.split()[1])))
        return [[key, str(was.get(key, 0)), str(then.get(key, 0))] for key in keys]

    def timeline(self) -> list[str]:
        if not self.then.entries:
            alike = "" if self.was.entries else ", as recorded and"
            return [f"nothing happens within {self.for_s:g} s of {rfc3339_milli(self.at)}{alike} with these settings"]
        told = ((f"+{one.at - self.at:6.1f} s  op {one.id:<4} {one.source:<9}", one) for one in self.then.entries)
        return [f"{head} {one.verb:<9} {_subject(one)}  {one.text}".rstrip() for head, one in told]

    def as_json(self) -> dict[str, Any]:
        told = [
            {"after_s": round(one.at - self.at, 1), "op": one.id, "verb": one.verb, "source": one.source}
            | {"subject": _subject(one), "text": one.text}
            for one in self.then.entries
        ]
        counts = {"recorded": self.was.counts(), "changed": self.then.counts()}
        return {"from": self.at, "for_s": self.for_s, **counts, "timeline": told}


def _subject(entry: HistoryEntry) -> str:
    return entry.subjects[1] if len(entry.subjects) > 1 else ""


def what_if(played: Played, changes: tuple[str, ...], for_: str, say: Callable[[str], None]) -> WhatIf:
    """From the moment that was played up to, with these settings changed."""
    try:
        for_s = span(for_)
    except BadEventError as error:
        raise UserError(f"--for {for_}: {error}") from None
    header, at = played.recording.header, played.now
    config = changed(header.settings, changes)
    snapshot = snapshot_of(played.engine.world, at, config, source=f"recording of {header.identity}")
    was = Story()
    was.follow(played.engine)
    for record in played.rest():
        if isinstance(record, Turn) and record.now > at + for_s:
            break
        played.replay.put(record)
    return WhatIf(at, for_s, was, go_on(snapshot, config, for_s, say))


def changed(settings: dict[str, Any], changes: tuple[str, ...]) -> Config:
    """The recorded settings with these changed: mix.rebalance.at-once=2, as in a file of settings."""
    whole = msgspec.to_builtins(settings)
    for change in changes:
        path, equals, text = change.partition("=")
        *above, last = path.split(".")
        if not equals or not last:
            raise UserError(f"--set {change}: must be KEY=VALUE, e.g. --set mix.reservation-s=20")
        place = whole
        for name in above:
            place = place.setdefault(name, {}) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            raise UserError(f"--set {change}: there is no {path}")
        try:
            place[last] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise UserError(f"--set {change}: {text!r} is not a value; it is read as YAML") from None
        if unknown := unknown_key(yaml.safe_dump(whole), file_shape(names(), names())):
            raise UserError(f"--set {change}: {unknown}")
    try:
        return from_file(whole)
    except msgspec.ValidationError as error:
        raise UserError(f"--set {' '.join(changes)}: {error}") from None


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
