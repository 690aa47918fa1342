"""Issue 23: a recording is a ring of parts; from any checkpoint in it the same is decided as from the start."""

import contextlib
import gc
import os
import random
import shutil
import sys
import tempfile
import types
from pathlib import Path

import msgspec
import pytest

from mooring.capabilities.balance.book import BOOK, FEW, STORE, STORE_IDS, SUMMARY_IDS, Book, restore_book
from mooring.capabilities.balance.policy import BalancePolicy
from mooring.capabilities.balance.summary import StoreSummary
from mooring.capabilities.mix.admission.book import SlotBook
from mooring.capabilities.mix.policy import MixPolicy
from mooring.cli.replay import replay as replay_command
from mooring.core.engine.events import Features, LeaseChanged, PolicyChanged, QueueSettingsChanged, Tick
from mooring.core.engine.recording.checkpoint import Checkpoint, capture, restore
from mooring.core.engine.recording.memory import STEP, MemorySnapshot, NotNowError
from mooring.core.engine.recording.reading import read_from_checkpoint
from mooring.core.engine.recording.remembering import BadMemoryError, read
from mooring.core.engine.recording.replay import Replay
from mooring.core.model.cluster import Key, Pod, PodShape
from mooring.core.model.events import Gone, Listed, Seen
from mooring.core.model.exits import UserError
from mooring.core.model.instructions import Outcome
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import Region
from mooring.core.model.times import rfc3339_milli
from mooring.core.queue import Settings
from mooring.process.assemble import capabilities
from mooring.process.blackbox.file import BadRecordingError, RecordingFile, header_line, recordings
from mooring.process.blackbox.playback import Playback
from mooring.process.blackbox.writer import PARTS, TOGETHER_S, BlackBox, header_of
from mooring.process.replica import KINDS, engine_of
from mooring.process.settings.config import Config
from tests.blackbox.environment import INCIDENTS, SCENARIOS, record, records_of, reframed, replayed

COMMITTED = sorted(INCIDENTS.glob("*.blackbox"))


def rows_of(engine):
    """In their order."""
    return {kind: list(map(row_of, rows)) for kind, rows in capture(engine).rows.items()}


def row_of(found):
    """Nothing is decided from the version of a pod; of an update that shows nothing else, that alone is recorded."""
    return msgspec.structs.replace(found, resource_version="") if isinstance(found, Pod) else found


def checkpointed(every):
    """Whenever a replica starts: a checkpoint after every so many turns."""

    def watch(replica):
        if not hasattr(replica, "turns"):
            replica.turns, record = 0, replica.blackbox.turn

            def turn(*what):
                record(*what)
                replica.turns += 1
                if replica.turns % every == 0:
                    replica.blackbox.begin_part()

            replica.blackbox.turn = turn

    return watch


@pytest.mark.parametrize("name", SCENARIOS)
def test_from_any_checkpoint_the_same_is_decided(name, tmp_path):
    """O6: every scene, a checkpoint every few turns; from each to the end, and from the start over all of them."""
    record(name, tmp_path, checkpointed(5))
    difference, whole = replayed(tmp_path)
    assert difference is None
    file = RecordingFile(tmp_path)
    numbers = [part.header.number for part in file.parts]
    assert len(numbers) >= 2
    assert numbers == list(range(len(numbers)))
    begun = 0
    for place in range(1, len(numbers)):
        file.parts = RecordingFile(tmp_path).parts[place:]
        try:
            played = Playback(file)
        except BadRecordingError:
            assert place == len(numbers) - 1, "only the last checkpoint may have been cut off by the end"
            continue
        replay = Replay(played.engine)
        assert all(replay.put(one) is None for one in played.records)
        assert replay.turns < whole.turns
        assert replay.engine.history.count == whole.engine.history.count
        begun += 1
    assert begun


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_a_restored_engine_remembers_all_that_the_captured_one_did(path):
    """Everything, compared value by value: a field that a capability adds is kept, or this fails."""
    played = Playback(RecordingFile(path))
    replay, number = Replay(played.engine), 0
    for number, one in enumerate(played.records):
        replay.put(one)
        if number % 11:
            continue
        was = capture(replay.engine)
        again = Playback(RecordingFile(path)).engine
        restore(again, Checkpoint(was.now, was.rows, list(was.memory.records())))
        now = capture(again)
        assert rows_of(again) == rows_of(replay.engine)
        assert list(now.memory.records()) == list(was.memory.records())
        assert again.world.check() == []
    assert number


def test_settings_that_changed_since_the_start_are_kept(tmp_path):
    """A policy that follows at run time decides after the checkpoint as before it."""
    made = Recorded(tmp_path, 10 << 20)
    policy = msgspec.structs.replace(MixPolicy(), reservation_s=7.0)
    made.give(PolicyChanged("mix", msgspec.to_builtins(policy), policy.capacity))
    made.give(QueueSettingsChanged(Settings(max_schedule_cost=3)))
    assert made.box.begin_part()
    for _ in range(60):
        made.give(Tick())
    made.box.close()
    _, replay = replayed(tmp_path, at=made.now)
    assert replay.turns < 70
    assert replay.engine.capabilities["mix"].policy.reservation_s == 7.0
    assert replay.engine.world.index(SlotBook).policy.reservation_s == 7.0
    assert replay.engine.queue.settings.max_schedule_cost == 3


def test_all_of_a_book_of_regions_is_kept():
    """It is taken by name: an attribute that is added and not named would be lost."""
    book = Book(BalancePolicy())
    follow = {"_policy", "summary", "_operators", "_seen", "_left", "_leaving"}
    assert {*BOOK} | follow == vars(book).keys()
    rest = {"policy", "rules", "stores", "regions", "_voters", "by_voters", "size_mib", "bytes", "_order", "_odd_kept"}
    assert {*SUMMARY_IDS} | rest == vars(book.summary).keys()
    assert {*STORE, *STORE_IDS} == {*StoreSummary.__slots__}


def test_while_a_list_is_being_taken_in_there_is_no_checkpoint():
    engine = _engine()
    engine.handle(Listed(Kind.POD, tuple(_pod(i) for i in range(3000))), 1.0)
    with pytest.raises(NotNowError):
        capture(engine)


def _engine():
    config = Config()
    return engine_of(config, capabilities(config))


def _pod(number, version=1, **more):
    return Pod("a", f"p{number}", f"u{number}", str(version), SHAPES[number % 3], **more)


SHAPES = [PodShape(cpu_milli=milli) for milli in (1, 2, 3)]


class Recorded:
    """An engine with a black box, driven by hand."""

    def __init__(self, directory, size, *between):
        """`between`: later and monotonic."""
        self.told, self.engine, self.now = [], _engine(), 0.0
        header = header_of(Config(), "one", 1_767_225_600.0)
        self.box = BlackBox(directory, header, size, self.told.append, lambda: capture(self.engine), *between)
        self.engine.recorder = self.box
        book = self.engine.world.index(SlotBook)
        book.written = lambda write: self.box.written(SlotBook.__name__, write)
        for kind in KINDS:
            self.give(Listed(kind, tuple(_pod(i) for i in range(500)) if kind is Kind.POD else ()))
        self.give(Features(frozenset({"mix", "home"})), LeaseChanged(leading=True))

    def give(self, *events):
        self.now += 1.0
        self.engine.handle_all(events, self.now)

    def flush(self):
        """Until the thread has written what it was given."""
        files = self.box._files
        while files.waiting and not files.stopped:
            files._wake.set()
            files.thread.join(0.001)


def held(directory: Path) -> int:
    """Bytes on disk at one moment: counted until nothing was written or dropped meanwhile."""
    was: dict[str, int] = {}
    while (now := _sizes(directory)) != was:
        was = now
    return sum(was.values())


def _sizes(directory: Path) -> dict[str, int]:
    found = {}
    for path in recordings(directory):
        with contextlib.suppress(FileNotFoundError):
            found[path.name] = path.stat().st_size
    return found


def _four_thousand_turns(directory, size):
    """Of 600 pods, which come, change and go. The bound is looked at on the way."""
    made = Recorded(directory, size)
    for turn in range(4000):
        number = turn * 7 % 600
        pod = _pod(number, turn, ready=turn // 600 % 2 == 0)
        made.give(Gone(Kind.POD, pod.key, pod.uid) if turn % 50 == 9 else Seen(Kind.POD, pod))
        if turn % 20 == 0:
            made.flush()
            assert held(directory) <= size
    return made


def test_the_ring_drops_its_oldest_parts_and_goes_on(tmp_path):
    """Disk bounded always; what is left begins with a checkpoint, misses no turn, replays, and is as much as fits: of
    the parts that the bound has room for, one is being written and one may have made room for it."""
    whole = _four_thousand_turns(tmp_path / "whole", 10 << 20)
    assert whole.box.begin_part()
    while whole.box._checkpoint is not None:
        whole.give(Tick())
    whole.box.close()
    turns, checkpoint = (part.path.stat().st_size for part in RecordingFile(tmp_path / "whole").parts)
    room = checkpoint // 4
    ring = tmp_path / "ring"
    made = _four_thousand_turns(ring, PARTS * (checkpoint + room))
    made.box.close()
    assert not made.told
    parts = RecordingFile(ring).parts
    assert parts[0].header.number > 3
    difference, replay = replayed(ring)
    assert difference is None
    assert replay.turns == made.now - parts[0].header.started_at
    assert replay.turns >= (PARTS - 2) * room * 4000 // turns
    assert rows_of(replay.engine) == rows_of(made.engine)
    assert made.box.paths == [part.path for part in parts]


def test_turns_stay_together_while_a_checkpoint_is_written(tmp_path):
    """A record of its own for each turn between two parts of it would cost as much as a quarter of the checkpoint. The
    turns wait no longer than they would without it."""
    clock, calls = [0.0], []
    made = Recorded(tmp_path, 10 << 20, lambda seconds, call: calls.append((seconds, call)), lambda: clock[0])

    def go_on():
        (seconds, call), calls[:] = calls[0], calls[1:]
        clock[0] += seconds
        call()

    while calls:
        go_on()
    made.box.begin_part()
    while made.box.copying:
        go_on()
    began, turns = clock[0], 0
    while made.box._checkpoint is not None:
        made.give(Seen(Kind.POD, _pod(turns, 1000 + turns)))
        turns += 1
        go_on()
    assert turns > 5
    while calls:
        go_on()
    assert clock[0] == pytest.approx(began + TOGETHER_S)
    made.box.close()
    *_, last = RecordingFile(tmp_path).parts
    assert [msgspec.msgpack.decode(one)[0] for one in last.records()].count("turns") == 1
    assert replayed(tmp_path)[0] is None


def test_one_part_beside_the_present_one_must_fit(tmp_path):
    """A bound that cannot hold a checkpoint ends the recording, in words."""
    made = Recorded(tmp_path, 9000)
    for turn in range(400):
        made.give(Seen(Kind.POD, _pod(turn % 500, turn)))
        made.flush()
    assert len(made.told) == 1
    assert "blackbox.size" in made.told[0]
    assert held(tmp_path) <= 9000


def test_events_between_the_parts_of_a_checkpoint_are_read_after_it(tmp_path):
    """Pods that change, go, come and are listed anew while the checkpoint is being written."""
    made = Recorded(tmp_path, 10 << 20)
    made.give(Tick())
    assert made.box.begin_part()
    made.give(Seen(Kind.POD, _pod(499, 2, node="n1")), Gone(Kind.POD, _pod(498).key, "u498"))
    made.give(Seen(Kind.POD, _pod(1, 2)), Seen(Kind.POD, _pod(498, 3)))
    made.give(Seen(Kind.POD, _pod(499, 3, node="n2")), Seen(Kind.POD, _pod(700)))
    made.give(Listed(Kind.POD, tuple(_pod(i, 5) for i in range(100, 420))), Seen(Kind.POD, _pod(101, 6)))
    for turn in range(60):
        made.give(Seen(Kind.POD, _pod(100 + turn * 5, 7 + turn, ready=True)))
    made.box.close()
    file = RecordingFile(tmp_path)
    assert len(file.parts) == 2
    for place in (0, 1):
        file.parts = RecordingFile(tmp_path).parts[place:]
        played = Playback(file)
        replay = Replay(played.engine)
        assert all(replay.put(one) is None for one in played.records)
        assert rows_of(replay.engine) == rows_of(made.engine)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(4, 12))])
def test_whatever_comes_in_the_world_is_the_same_after_every_turn(seed, tmp_path):
    """Late and repeated versions, pods that went and come again, answers of writes, lists of any length and what comes
    while one is taken in, several of one pod in a turn; from the start, and from each checkpoint. O6: and every event
    of a turn is in the recording, whatever it did to the world."""
    randomness, made, were, given = random.Random(seed), Recorded(tmp_path, 10 << 20), {}, {}
    for turn in range(90):
        events = [_something(randomness, turn) for _ in range(randomness.randrange(1, 6))]
        made.give(*events)
        were[made.now], given[made.now] = list(made.engine.world.pods()), len(events)
        if turn % 40 == 20:
            made.box.begin_part()
    made.box.close()
    for place in range(len(RecordingFile(tmp_path).parts)):
        file = RecordingFile(tmp_path)
        file.parts = file.parts[place:]
        if place and read_from_checkpoint(file.parts[0].records()) is None:
            continue
        played = Playback(file)
        replay = Replay(played.engine)
        for one in played.records:
            assert replay.put(one) is None
            assert _by_uid(replay.engine.world.pods()) == _by_uid(were.get(one.now, replay.engine.world.pods()))
            assert len(one.events) + len(one.unchanged) == given.get(one.now, len(one.events))
        assert replay.engine.world.check() == []


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, 4))])
def test_a_checkpoint_copied_in_steps_while_others_have_the_loop_replays_bit_for_bit(seed, tmp_path):
    """O6: each slice is one step; admission writes between them at any moment, and at times the engine takes a turn all
    the same. From every checkpoint the same comes out, and all that is remembered in the end is equal."""
    randomness, later, ticks = random.Random(seed), [], iter(range(10**9))
    made = Recorded(tmp_path, 10 << 20, lambda _, call: later.append(call), lambda: float(next(ticks)))
    book, sliced = made.engine.world.index(SlotBook), 0
    for turn in range(90):
        made.give(*(_something(randomness, turn) for _ in range(randomness.randrange(1, 6))))
        made.box.begin_part()
        while later:
            later.pop(0)()
            sliced += made.box.copying
            if made.box.copying and randomness.random() < 0.1:
                book.open(f"owner-{randomness.randrange(5)}", made.engine.world, made.now)
            if made.box.copying and randomness.random() < 0.01:
                made.give(_something(randomness, turn))
    assert sliced > 500
    for _ in range(200):
        made.give(Tick())  # until the lists are taken in
    made.box.close()
    assert made.told == []
    numbers, read_from = len(RecordingFile(tmp_path).parts), 0
    assert numbers >= 3
    for place in range(numbers):
        file = RecordingFile(tmp_path)
        file.parts = file.parts[place:]
        if place and read_from_checkpoint(file.parts[0].records()) is None:
            continue
        read_from += 1
        played = Playback(file)
        replay = Replay(played.engine)
        assert all(replay.put(one) is None for one in played.records)
        assert rows_of(replay.engine) == rows_of(made.engine)
        assert remembered(replay.engine) == remembered(made.engine)
    assert read_from >= 3


def test_a_write_before_the_book_is_copied_puts_the_checkpoint_off(tmp_path):
    """O6: admission does not wait for a copy: what it writes to a book that is not copied yet would be in it twice."""
    later, ticks = [], iter(range(10**9))
    made = Recorded(tmp_path, 10 << 20, lambda _, call: later.append(call), lambda: float(next(ticks)))
    book = made.engine.world.index(SlotBook)
    for owner in range(500):
        book.open(f"owner-{owner}", made.engine.world, made.now)
    assert made.box.begin_part()
    assert made.box.copying
    book.open("one-more", made.engine.world, made.now)
    assert not made.box.copying
    while later:
        later.pop(0)()
    made.give(Tick())
    assert made.box.begin_part()
    while made.box.copying and not made.box._captured.memory.first_is_copied:
        later.pop(0)()
    book.open("after-it-was-copied", made.engine.world, made.now)
    assert made.box.copying
    while later:
        later.pop(0)()
    made.give(Tick())
    while later:
        later.pop(0)()
    made.box.close()
    file = RecordingFile(tmp_path)
    assert len(file.parts) == 2
    for place in (0, 1):
        file.parts = RecordingFile(tmp_path).parts[place:]
        played = Playback(file)
        replay = Replay(played.engine)
        assert all(replay.put(one) is None for one in played.records)
        assert remembered(replay.engine) == remembered(made.engine)


def remembered(engine):
    """All that a checkpoint keeps besides the rows, as bytes."""
    return list(capture(engine).memory.records())


def test_no_step_copies_much(tmp_path):
    """O6: no pause above 5 ms: whatever is remembered, one step copies a hundred values, and a record has some hundreds."""
    many = {
        "flat": {i: str(i) for i in range(5000)},
        "deep": {i: {"a": [i]} for i in range(2000)},
        "list": [*range(7000)],
    }
    snapshot = MemorySnapshot(many, {})

    def copied():
        return sum(len(node.items) for node in snapshot.nodes)

    before = 0
    for _ in snapshot.steps:
        assert copied() - before <= STEP
        before = copied()
    assert before >= 5000 + 3 * 2000 + 7000
    assert read(snapshot.records(), {}, {}) == many


def test_a_book_of_many_regions_is_copied_in_steps_and_comes_back(tmp_path):
    """A million regions are no value that is copied, or made into bytes, in one go."""
    book, policy = Book(BalancePolicy()), BalancePolicy()
    for number in range(1, FEW + 300):
        book.summary.put(Region(number, f"{number:06}", f"{number + 1:06}", size_mib=number))
    snapshot = MemorySnapshot({"books": {"a": book}}, {})
    assert sum(1 for _ in snapshot.steps) > 10
    back = restore_book(Book(policy), read(snapshot.records(), {}, {})["books"]["a"])
    assert list(back.summary.regions.values()) == list(book.summary.regions.values())
    assert (back.summary.by_voters, back.summary._voters) == (book.summary.by_voters, book.summary._voters)
    assert (back.summary._order, back.summary.bytes) == (book.summary._order, book.summary.bytes)


def _by_uid(pods):
    return {pod.uid: row_of(pod) for pod in pods}


def _at(number, version, uid=""):
    """A version of a pod always shows the same; the next one often shows nothing new."""
    uid = uid or f"u{number}"
    drawn = random.Random(f"{uid} {version // 7}")
    moved = {"node": drawn.choice(["", "n1", "n2"]), "ready": drawn.random() < 0.5}
    if drawn.random() < 0.2:
        moved["annotations"] = {"vacant.io/slot": str(drawn.randrange(3))}
    pod = _pod(number, version, **moved)
    if uid == pod.uid:
        return pod
    return msgspec.structs.replace(pod, uid=uid, shape=SHAPES[drawn.randrange(3)])


def _something(randomness, turn):
    """An event of one of a few pods; versions jump back at times."""
    number, version = randomness.randrange(8), max(2, 10 * turn + randomness.randrange(-40, 10))
    # Some are recreated under their name.
    pod = _at(number, version, f"u{number}-{turn // 30}" if randomness.random() < 0.3 else "")
    match randomness.randrange(12):
        case 0:
            return Gone(Kind.POD, pod.key, pod.uid)
        case 1:
            return Outcome(instruction="i1", kind=Kind.POD, object=pod)
        case 2:
            return Outcome(instruction="i1", gone=Gone(Kind.POD, pod.key, pod.uid))
        case 3:
            many = randomness.choice([0, 300, 2500])
            return Listed(Kind.POD, tuple(_at(i, version) for i in range(randomness.randrange(4, 9) + many)))
        case _:
            return Seen(Kind.POD, pod)


def test_a_part_whose_checkpoint_was_cut_off_is_read_from_the_part_before(tmp_path):
    """Kill -9 while a checkpoint is being written costs nothing that was recorded."""
    made = Recorded(tmp_path, 10 << 20)
    assert made.box.begin_part()
    made.give(Seen(Kind.POD, _pod(1, 2)))
    made.box.close()
    parts = RecordingFile(tmp_path).parts
    assert read_from_checkpoint(parts[1].records()) is None
    difference, replay = replayed(tmp_path, at=1e12)
    assert difference is None
    assert rows_of(replay.engine) == rows_of(made.engine)
    parts[0].path.unlink()
    with pytest.raises(BadRecordingError, match="whole checkpoint"):
        replayed(tmp_path)


def test_parts_in_one_file_are_the_same_recording(tmp_path):
    """As `mooring blackbox pull` writes them: one after the other."""
    record("restart", tmp_path / "box", checkpointed(10))
    parts = RecordingFile(tmp_path / "box").parts
    one = tmp_path / "one.blackbox"
    one.write_bytes(b"".join(part.path.read_bytes() for part in parts))
    assert [part.header for part in RecordingFile(one).parts] == [part.header for part in parts]
    assert replayed(one)[1].turns == replayed(tmp_path / "box")[1].turns


@pytest.mark.parametrize("whole", [0, 1, 40])
def test_a_part_whose_first_line_was_cut_off_hides_none_before_it(whole, tmp_path):
    """Killed, or out of room, just as the next part began: in a file of its own, or behind the others."""
    shutil.copyfile(INCIDENTS / "restart.blackbox", tmp_path / "a.blackbox")
    begun = (INCIDENTS / "restart.blackbox").read_bytes()[:whole]
    (tmp_path / "b.blackbox").write_bytes(begun)
    os.utime(tmp_path / "a.blackbox", (1, 1))
    one = tmp_path / "one"
    one.write_bytes((tmp_path / "a.blackbox").read_bytes() + begun)
    expected = replayed(INCIDENTS / "restart.blackbox")[1].turns
    assert replayed(tmp_path)[1].turns == expected
    assert replayed(one)[1].turns == expected
    (tmp_path / "a.blackbox").unlink()
    for path in (tmp_path, tmp_path / "b.blackbox"):
        with pytest.raises(BadRecordingError, match="cut off in its first line" if whole else "empty"):
            RecordingFile(path)


def test_a_checkpoint_of_another_version_is_refused_in_words(tmp_path):
    engine = _engine()
    memory = list(MemorySnapshot({"engine": engine.kept()}, engine.anchors()).records())
    shapes = {
        name: attributes | {"new"}
        for name, attributes in MemorySnapshot(engine.kept(), engine.anchors()).shapes().items()
    }
    with pytest.raises(BadMemoryError, match=r"kept otherwise in this version \(new\)"):
        read(memory, engine.anchors(), shapes)
    made = Recorded(tmp_path / "box", 10 << 20)
    assert made.box.begin_part()
    for _ in range(60):
        made.give(Tick())
    made.box.close()
    last = made.box.paths[-1]
    other = [one.replace(b"WorkList", b"TaskList") for one in records_of(last)]
    reframed(last, tmp_path / "other.blackbox", other)
    with pytest.raises(BadRecordingError, match=r"there is no TaskList in this version"):
        replayed(tmp_path / "other.blackbox")


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "mooring.process.settings.config:Config",
        "mooring.core.engine.recording.memory:read",
        "mooring.core.engine.recording.memory:OrderedDict",
        "mooring.core.engine.recording.memory:msgspec.inspect.StructType",
        "mooring.core.engine.recording.remembering:sys.modules",
        "mooring.core.engine.schedule:WorkList.__class__",
        "mooring.core.engine.recording.checkpoint:Engine",
        "mooring.core.engine.recording.remembering:BadMemoryError",
        "mooring.core.engine.engine:Engine",
        "Engine",
        "Config",
        "MixPolicy",
        "__builtins__",
    ],
)
def test_a_file_makes_nothing_but_our_own_values(name):
    """H3: it may come from anybody."""
    with pytest.raises(BadMemoryError, match="there is no"):
        read([msgspec.msgpack.encode([(0, name, None, [])])], {}, {})


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_recording_names_a_class_by_where_it_is_defined(name, tmp_path):
    """H3: classes have short names, from one fixed table."""
    record(name, tmp_path, checkpointed(5))
    written = b"".join(one for part in RecordingFile(tmp_path).parts for one in part.records())
    assert b"WorkList" in written
    assert b"mooring.core" not in written and b"mooring.capabilities" not in written


def test_a_path_of_an_earlier_format_means_the_class_of_that_short_name():
    """H3: until format 6 a path came before the name. It leads nowhere: the table is all there is."""
    old = [(0, "dict", None, ["a", ["read", "os.path:Key", msgspec.msgpack.encode(Key("n", "x"))]])]
    assert read([msgspec.msgpack.encode(old)], {}, {}) == {"a": Key("n", "x")}


def _ways_to(wanted):
    """From a module of ours over what it imports, as `module:attribute.attribute…`."""
    ways = [(f"{name}:", module) for name, module in list(sys.modules.items()) if name.startswith("mooring.core.")]
    seen = {id(module) for _, module in ways}
    while ways:
        way, module = ways.pop(0)
        for name, value in list(vars(module).items()):
            if value is wanted:
                yield f"{way}{name}"
            elif isinstance(value, types.ModuleType) and id(value) not in seen:
                seen.add(id(value))
                ways.append((f"{way}{name}.", value))


def test_a_file_deletes_no_file_of_the_person_who_opens_it(tmp_path):
    """H3: a class of `tempfile` unlinks a path when it goes; a recording that named the way there had it made."""
    closer = tempfile._TemporaryFileCloser
    (victim := tmp_path / "victim").write_text("mine")
    ways = list(_ways_to(closer))
    for way in [*ways, "mooring.core.engine.engine:tempfile._TemporaryFileCloser"]:
        attributes = ["name", str(victim), "delete", True, "close_called", False]
        with pytest.raises(BadMemoryError, match="there is no"):
            read([msgspec.msgpack.encode([(0, way, None, attributes)])], {}, {})
        gc.collect()
        assert victim.exists()


@pytest.mark.parametrize("name", ["_TemporaryFileCloser", "tempfile:_TemporaryFileCloser", "Popen", "subprocess:Popen"])
def test_a_class_outside_the_table_is_refused_wherever_a_recording_may_name_one(name, tmp_path):
    """H3: as an object, a value, a struct of bytes or an enumeration; in a file that is replayed, with a sentence."""
    victim = str(tmp_path / "victim")
    kept = [(0, name, None, ["name", victim, "delete", True])]
    values = [["made", name, victim], ["read", name, msgspec.msgpack.encode({"name": victim})], ["enum", name, victim]]
    for parts in (kept, *([(0, "dict", None, ["a", value])] for value in values)):
        with pytest.raises(BadMemoryError, match=f"there is no {name} in this version"):
            read([msgspec.msgpack.encode(parts)], {}, {})

    def forged(value):
        match value:
            case "WorkList":
                return name
            case [*inside]:
                return [forged(one) for one in inside]
        return value

    record("restart", tmp_path / "box", checkpointed(5))
    records = []
    for one in records_of(tmp_path / "box"):
        tag, *rest = msgspec.msgpack.decode(one)
        if tag == "memory":
            rest = [msgspec.msgpack.encode(forged(msgspec.msgpack.decode(rest[0])))]
        records.append(msgspec.msgpack.encode([tag, *rest]))
    last = max((tmp_path / "box").iterdir())
    with pytest.raises(BadRecordingError, match=f"there is no {name} in this version"):
        replayed(reframed(last, tmp_path / "forged.blackbox", records))


def test_a_file_sets_no_attribute_that_python_itself_reads():
    """H3: what an object keeps are attributes of ours."""
    name = "CapBacklog"
    with pytest.raises(BadMemoryError, match="keeps no '__class__'"):
        read([msgspec.msgpack.encode([(0, name, None, ["__class__", 1])])], {}, {})


@pytest.mark.parametrize(("name", "of"), [("lab-rebalance", 3), ("lab-notice", 2)])
def test_earlier_formats_are_read_and_decided_equally(name, of):
    """Each column in full (5, the previous one), without versions of updates that change nothing (4), turn by turn (3), of
    a pod what moved since it was written before (2)."""
    old = INCIDENTS / f"{name}.blackbox"
    assert RecordingFile(old).header.format == of
    assert header_line(RecordingFile(old).header)
    difference, replay = replayed(old)
    assert difference is None
    assert replay.instructions > 0


def test_the_first_format_is_read_to_its_end():
    """One part, whole pods, no checkpoint. The hand-over in it began at the first look at PD; today one waits until PD
    has listed its schedulers for a while (E3), so what came in is compared, and what was decided differs there first."""
    file = RecordingFile(INCIDENTS.parent / "format1" / "restart.blackbox")
    assert file.header.format == 1
    assert header_line(file.header)
    played = Playback(file)
    replay, known, differences = Replay(played.engine), {}, []
    for entry in played.records:
        if (difference := replay.put(entry)) is not None:
            differences.append(difference)
        pod = played.engine.world.pod(Key("tidb", "demo-tikv-0"))
        known |= {pod.uid: pod} if pod is not None else {}
    assert differences[0].recorded[1]["why"].startswith("marks the hand-over")
    assert len(known) == 2
    assert list(known.values())[-1].ready


def test_what_comes_after_a_damaged_part_can_still_be_asked(tmp_path, capsys):
    """Issue 23: named with its part, place and time; the next checkpoint is where it can be read again."""
    record("restart", tmp_path / "box", checkpointed(10))
    parts = RecordingFile(tmp_path / "box").parts
    assert len(parts) > 4
    whole = [part.path.read_bytes() for part in parts]
    for place in (0, 2):
        damaged = bytearray(whole[place])
        damaged[-40] ^= 1
        one = tmp_path / f"{place}.blackbox"
        one.write_bytes(b"".join([*whole[:place], damaged, *whole[place + 1 :]]))
        assert len(RecordingFile(one).parts) == len(parts)
        again = rfc3339_milli(parts[place + 1].header.started_at)
        words = rf"part {place} is damaged at byte \d+, after .*; up to there equal: .* read again from {again} on"
        with pytest.raises(UserError, match=words) as error:
            replay_command(str(one))
        assert error.value.code == 2
        assert replay_command(str(one), "queue", until=rfc3339_milli(parts[-2].header.started_at)) == 0
    parts[2].path.unlink()
    with pytest.raises(UserError, match="part 2, which comes after it, is missing, after"):
        replay_command(str(tmp_path / "box"))
    # The first that is left, damaged in its checkpoint: the next one is played, and that is said.
    parts[0].path.unlink()
    damaged = bytearray(whole[1])
    damaged[len(header_line(parts[1].header)) + 30] ^= 1
    parts[1].path.write_bytes(damaged)
    capsys.readouterr()
    assert replay_command(str(tmp_path / "box")) == 2
    said = capsys.readouterr()
    assert "part 1 is damaged" in said.err
    assert f"played from {rfc3339_milli(parts[3].header.started_at)}" in said.err
    assert said.out.startswith("equal: ")


def test_a_checkpoint_is_finished_where_nothing_happens(tmp_path):
    """On an idle cluster there may be no next turn for a long time."""
    later = []
    made = Recorded(tmp_path, 10 << 20, lambda seconds, call: later.append((seconds, call)))
    while later:
        later.pop(0)[1]()
    assert made.box.begin_part()
    for _ in range(1000):
        if later:
            later.pop(0)[1]()
    assert not later
    made.flush()
    _flushed(made)
    assert read_from_checkpoint(RecordingFile(tmp_path).parts[-1].records()) is not None
    made.box.close()


def _flushed(made):
    """Also what the thread has taken, and has not written yet."""
    for _ in range(100):
        if made.box._files.progress[0] == 1 and len(RecordingFile(made.box.paths[0].parent).parts) == 2:
            made.box._files.thread.join(0.05)
            return
        made.box._files.thread.join(0.05)
