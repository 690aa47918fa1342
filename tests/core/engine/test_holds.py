"""D8 and D9: housekeeping keeps to its windows, a person may pause a feature, and a feature may only observe."""

from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest

from mooring.core.engine.engine import Engine
from mooring.core.engine.events import Features, LeaseChanged, Tick
from mooring.core.engine.holds import PAUSE_MAP
from mooring.core.model.cluster import ConfigMap, Key
from mooring.core.model.decision import Evaluation, Fact, NextStep
from mooring.core.model.events import Gone, Seen
from mooring.core.model.instructions import Outcome, Patch, ReadPd
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.model.windows import DAYS, Window, is_open, next_change
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World

NEW_YORK = "America/New_York"
PATCH = Patch(kind=Kind.POD, key=Key("shop", "web"), uid="u", patch={})


def at(text, zone="UTC"):
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def operator(reason=Reason.WRONG_CLASS, **more):
    return Operator(id="", source="scripted", kind="replace-pod", subject="pod/shop/web", reason=reason, **more)


class Scripted:
    name, sources, policy = "scripted", frozenset({"scripted"}), None

    def __init__(self, *proposals, **more):
        self.evaluation = Evaluation(proposals=proposals, **more)
        self.asked = 0

    def affected_keys(self, trigger, world):
        return ["k"]

    def keys(self, world):
        return ["k"]

    def indexes(self):
        return ()

    def evaluate(self, key, world, queue, notes, now):
        self.asked += 1
        return self.evaluation

    def next_step(self, running, world, queue, now):
        return NextStep(step=0)

    def recover(self, world, queue, now):
        return ()

    def recovery_needs(self, world):
        return ()


class Led:
    """An engine that leads, with one scripted capability."""

    def __init__(self, capability, *, now, windows=(), observing=False, limits=None):
        settings = msgspec.structs.replace(live_settings(), windows=windows, target_limits=limits or {})
        self.engine = Engine(World(), Queue(settings), [capability], namespace="mooring-system")
        names = frozenset({"scripted"})
        self.out = []
        for event in (Features(frozenset(), names) if observing else Features(names), LeaseChanged(leading=True)):
            self.feed(event, now)

    def feed(self, event, now):
        self.out += self.engine.handle(event, now)
        while (due := self.engine.next_wakeup()) is not None and due <= now:
            self.out += self.engine.work(now)

    def pause(self, data, now):
        key = {"namespace": "mooring-system", "name": PAUSE_MAP, "uid": "p", "resource_version": str(now)}
        self.feed(Seen(Kind.CONFIG_MAP, ConfigMap(**key, data=data)), now)

    @property
    def verdict(self):
        return self.engine.verdicts.get(("scripted", "k"))

    @property
    def moves(self):
        return len(self.engine.running) + len(self.engine.waiting)


NIGHT = Window(days=("Mon", "Tue", "Wed", "Thu", "Fri"), start="22:00", end="06:00", zone="Asia/Tokyo")


@pytest.mark.parametrize(
    ("text", "open_"),
    [
        ("2026-01-05T21:59:59", False),  # Monday
        ("2026-01-05T22:00:00", True),
        ("2026-01-06T05:59:59", True),
        ("2026-01-06T06:00:00", False),
        ("2026-01-10T05:00:00", True),  # Saturday: Friday's goes on
        ("2026-01-10T22:30:00", False),
        ("2026-01-12T05:00:00", False),  # Monday: Sunday has none
    ],
)
def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins(text, open_):
    """D8: days and hours in a time zone by its name."""
    assert NIGHT.is_open(at(text, "Asia/Tokyo")) is open_


def test_a_window_in_the_hour_that_summer_time_skips_opens_at_the_jump():
    """D8: on 8 March 2026 the clocks of New York go from 02:00 to 03:00, so 02:30 never comes."""
    window = (Window(days=("Sun",), start="02:30", end="05:00", zone=NEW_YORK),)
    before = at("2026-03-08T01:00:00", NEW_YORK)
    assert next_change(window, before) == at("2026-03-08T03:00:00", NEW_YORK)
    assert next_change(window, at("2026-03-08T03:30:00", NEW_YORK)) == at("2026-03-08T05:00:00", NEW_YORK)


def test_a_window_in_the_hour_that_comes_twice_is_open_in_both():
    """D8: on 1 November 2026 it is 01:00 to 02:00 twice in New York: four hours on the clock are five."""
    window = (Window(days=("Sun",), start="00:30", end="04:30", zone=NEW_YORK),)
    opens = next_change(window, at("2026-10-31T12:00:00", NEW_YORK))
    assert opens == at("2026-11-01T00:30:00", NEW_YORK)
    assert next_change(window, opens) - opens == 5 * 3600
    assert all(is_open(window, opens + minutes * 60) for minutes in range(0, 300, 10))


@pytest.mark.parametrize(
    "wrong",
    [{"days": ()}, {"days": ("Monday",)}, {"start": "7:00"}, {"end": "24:00"}, {"zone": "Tokio"}, {"zone": "/etc/x"}],
)
def test_a_window_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="a window has the"):
        Window(**wrong)


def test_housekeeping_waits_for_its_window_and_comes_when_it_opens():
    """D8: `outside-window` outside, begun the moment it opens without any event; requests of people never wait."""
    window = (Window(days=DAYS, start="22:00", end="23:00"),)
    noon, ten = at("2026-01-05T12:00:00"), at("2026-01-05T22:00:00")
    led = Led(Scripted(operator()), now=noon, windows=window)
    assert (led.moves, led.verdict.state, led.verdict.reason) == (0, State.WAITING, Reason.OUTSIDE_WINDOW)
    assert "Mon 22:00" in led.verdict.detail
    assert led.engine.next_wakeup() == ten
    led.feed(Tick(), ten)
    assert led.moves == 1
    assert Led(Scripted(operator(Reason.ASKED)), now=noon, windows=window).moves == 1
    assert Led(Scripted(operator(deadline=noon + 60)), now=noon, windows=window).moves == 1


def test_what_still_waits_when_the_window_closes_is_taken_back():
    """D8: nothing that waits is promoted outside the window, however much room there is then."""
    window = (Window(days=DAYS, start="12:00", end="13:00"),)
    noon, one = at("2026-01-05T12:00:00"), at("2026-01-05T13:00:00")
    busy = Scripted(operator(phases=({"node/a": 1},)), facts=(Fact("node/a", "pod/shop/other"),))
    led = Led(busy, now=noon, windows=window, limits={"node": 1})
    assert [*led.engine.waiting] == ["1"]
    led.feed(Tick(), one)
    assert led.moves == 0 and led.verdict.reason is Reason.OUTSIDE_WINDOW


def test_a_paused_feature_begins_nothing_until_the_pause_ends():
    """D8: who paused and until when are said; the pause ends by itself, or when its entry is removed."""
    led = Led(Scripted(operator(Reason.ASKED), again_at=None), now=1000.0, observing=True)
    led.feed(Features(frozenset()), 1000.0)
    led.pause({"scripted": '{"by":"alice","until":"1970-01-01T01:00:00Z"}'}, 1001.0)
    led.feed(Features(frozenset({"scripted"})), 1002.0)
    assert (led.moves, led.verdict.reason) == (0, Reason.PAUSED)
    assert "alice" in led.verdict.detail and "01:00:00" in led.verdict.detail
    assert led.engine.next_wakeup() == 3600.0
    led.feed(Tick(), 3600.0)
    assert led.moves == 1


@pytest.mark.parametrize("entry", ["everything", "scripted"])
def test_a_pause_takes_back_what_waits_and_removing_it_resumes(entry):
    """D8: an entry that cannot be read pauses too: in doubt nothing new begins."""
    busy = Scripted(operator(Reason.ASKED, phases=({"node/a": 1},)), facts=(Fact("node/a", "pod/shop/other"),))
    led = Led(busy, now=1000.0, limits={"node": 1})
    assert [*led.engine.waiting] == ["1"]
    led.pause({entry: "{}" if entry == "scripted" else "not json"}, 1001.0)
    assert led.moves == 0 and led.verdict.reason is Reason.PAUSED
    led.feed(Gone(Kind.CONFIG_MAP, Key("mooring-system", PAUSE_MAP), "p"), 1002.0)
    assert led.moves == 1


@pytest.mark.parametrize(("entry", "moves"), [("{}", 1), ('{"deadlines":true}', 0)])
def test_what_has_a_deadline_goes_on_unless_the_pause_says_all(entry, moves):
    """D8: an interruption notice does not wait for a person, unless the person said so."""
    led = Led(Scripted(operator(Reason.NOTICE, deadline=1100.0)), now=1000.0, observing=True)
    led.pause({"everything": entry}, 1000.0)
    led.feed(Features(frozenset({"scripted"})), 1001.0)
    assert led.moves == moves


def test_a_feature_that_observes_decides_and_writes_nothing():
    """D9: proposals are shown as *would*, looks are made, writes and promotions are not."""
    look = ReadPd(cluster=Key("tidb", "demo"))
    led = Led(Scripted(operator(Reason.ASKED), instructions=(PATCH, look)), now=1000.0, observing=True)
    assert led.moves == 0 and [type(one) for one in led.out] == [ReadPd]
    assert [one.subject for one in led.engine.would["scripted", "k"]] == ["pod/shop/web"]
    assert (led.verdict.state, led.verdict.reason) == (State.STABLE, Reason.OBSERVING)
    assert [entry.verb for entry in led.engine.history.of("pod/shop/web")] == ["would"]
    assert not led.engine.world.is_on("scripted")
    led.feed(Features(frozenset({"scripted"})), 1001.0)
    assert led.moves == 1 and not led.engine.would


def test_facts_are_followed_while_a_write_is_outstanding():
    """X2: what is seen while a write of the same key is under way counts at once; the write is not issued twice."""
    capability = Scripted(instructions=(PATCH,))
    led = Led(capability, now=1000.0)
    (patch,) = led.out
    capability.evaluation = Evaluation(instructions=(PATCH,), facts=(Fact("tikv/tidb/demo", "pod/tidb/demo-tikv-0"),))
    led.feed(Seen(Kind.CONFIG_MAP, ConfigMap(namespace="a", name="b", uid="c", resource_version="1")), 1001.0)
    assert led.engine.queue.used("tikv/tidb/demo") == 1
    assert led.out == [patch]
    capability.evaluation = Evaluation()
    led.feed(Outcome(instruction=patch.id), 1002.0)
    assert led.engine.queue.used("tikv/tidb/demo") == 0
