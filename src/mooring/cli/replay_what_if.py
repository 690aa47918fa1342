"""`mooring replay FILE --until T --set KEY=VALUE`: from there on with other settings, on the sandbox."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mooring.cli.output import Format, note, print_json, print_table
from mooring.core.model.exits import UserError

if TYPE_CHECKING:
    from mooring.core.engine.recording.records import Record
    from mooring.core.engine.recording.replay import Replay
    from mooring.process.blackbox.file import RecordingFile
    from mooring.process.settings.config import Config
    from mooring.rehearse.what_if import Story


def changed(settings: dict[str, Any], changes: tuple[str, ...]) -> "Config":
    """The recorded settings with these changed: mix.pace.…=VALUE, as in a file of settings."""
    import msgspec
    import yaml

    from mooring.process.settings.config import Config

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
            raise UserError(f"--set {change}: {text!r} is no value; it is read as YAML") from None
    try:
        return msgspec.convert(whole, Config)
    except msgspec.ValidationError as error:
        raise UserError(f"--set {' '.join(changes)}: {error}") from None


def what_if(
    recording: "RecordingFile",
    replay: "Replay",
    rest: "Iterator[Record]",
    at: float,
    changes: tuple[str, ...],
    span: str,
) -> "tuple[Story, Story, float]":
    """What was recorded from `at` on, what happens with other settings, and for how long both."""
    from mooring.core.engine.recording.records import Turn
    from mooring.process import logs
    from mooring.rehearse.events.catalog import BadEventError
    from mooring.rehearse.events.catalog import span as seconds
    from mooring.rehearse.from_world import snapshot_of
    from mooring.rehearse.what_if import Story, go_on

    try:
        for_s = seconds(span)
    except BadEventError as error:
        raise UserError(f"--for {span}: {error}") from None
    config, engine = changed(recording.header.settings, changes), replay.engine
    source = f"recording of {recording.header.identity}"
    snapshot = snapshot_of(engine.world, at, config, source=source)
    logs.configure("critical", "auto")
    was = Story()
    was.follow(engine)
    for record in rest:
        if isinstance(record, Turn) and record.now > at + for_s:
            break
        replay.put(record)
    return was, go_on(snapshot, config, for_s, note), for_s


def show(was: "Story", then: "Story", at: float, for_s: float, output: Format) -> None:
    from mooring.rehearse.what_if import VERBS

    recorded, now = was.counts(), then.counts()
    if output is Format.JSON:
        told = [
            {"after_s": round(one.at - at, 1), "op": one.id, "verb": one.verb, "source": one.source}
            | {"subject": one.subjects[1] if len(one.subjects) > 1 else "", "text": one.text}
            for one in then.entries
        ]
        print_json({"from": at, "for_s": for_s, "recorded": recorded, "changed": now, "timeline": told})
        return
    keys = sorted({*recorded, *now}, key=lambda key: (key.split()[0], VERBS.index(key.split()[1])))
    rows = [[key, str(recorded.get(key, 0)), str(now.get(key, 0))] for key in keys]
    print_table(["OPERATORS", "RECORDED", "CHANGED"], rows)
    print()
    for one in then.entries:
        subject = one.subjects[1] if len(one.subjects) > 1 else ""
        print(f"+{one.at - at:6.1f} s  op {one.id:<4} {one.source:<9} {one.verb:<9} {subject}  {one.text}".rstrip())
