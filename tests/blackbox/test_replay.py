"""O6: what entered the engine is recorded, and replays to the same instructions, bit for bit."""

import json
import struct
import sys
import zlib

import msgspec
import pytest

from mooring.capabilities.mix.admission.book import SlotBook
from mooring.cli import app
from mooring.core.engine.events import LeaseChanged
from mooring.core.engine.recording import brief
from mooring.core.engine.recording import records as recording
from mooring.core.engine.recording.brief import Batch, packed, unpacked
from mooring.core.engine.recording.reading import read
from mooring.core.engine.recording.records import PART, BadRecordError, PodRow, Turn, Writer, Written
from mooring.core.engine.recording.replay import Replay
from mooring.core.engine.why import explain
from mooring.core.model.cluster import Key, Owner, Pod, PodShape
from mooring.core.model.events import Change, Gone, Listed, Seen
from mooring.core.model.exits import UserError
from mooring.core.model.instructions import Outcome
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason
from mooring.process.blackbox.file import BadRecordingError, RecordingFile, header_line
from mooring.process.blackbox.playback import Playback
from mooring.process.http.why import answer
from tests.blackbox.environment import INCIDENTS, SCENARIOS, record, records_of, reframed, replayed

COMMITTED = sorted(INCIDENTS.glob("*.blackbox"))
A_UID = "0b5b8d3a-93c5-4d4e-8a3b-3f1de62b1c07"
RESTART = INCIDENTS / "restart.blackbox"


def run(*words):
    return app([*map(str, words)], exit_on_error=False, print_error=False, result_action="return_value")


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_recorded_scenario_replays_equal(name, tmp_path):
    """O6: every replica of the scenario, instruction by instruction."""
    made = record(name, tmp_path)
    assert made
    for path in made:
        difference, replay = replayed(path)
        assert difference is None
    assert replay.instructions > 0


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_a_recorded_incident_is_decided_today_as_it_was_then(path):
    """A regression test of all deciding. Where a change is meant to decide otherwise, record anew and look at what
    `mooring replay` says differs: python -m tests.blackbox.environment"""
    difference, replay = replayed(path)
    assert difference is None, f"mooring replay {path}"
    assert replay.instructions > 0
    assert path.stat().st_size < 100_000


def test_there_are_incidents():
    assert len(COMMITTED) >= 6


def test_admission_writes_to_the_book_between_turns_and_that_is_recorded(tmp_path):
    """What enters besides events: reservations of Mix. Without them the book would be another."""
    first = record("mode-change", tmp_path)[0]
    writes = [one for one in read(records_of(first)) if isinstance(one, Written)]
    assert {one.index for one in writes} == {"SlotBook"}
    _, replay = replayed(first)
    assert replay.engine.world.index(SlotBook).asked_at > 0.0


def test_why_answers_as_it_did_then(tmp_path):
    """O6: the same words at the same moment; only the age of the data is not recorded."""
    asked = []

    def watch(replica):
        if replica.engine.now < replica.shell.now():  # in virtual time several turns share a moment
            asked.append((replica.shell.now(), answer(replica, "pod/tidb/demo-tikv-0")))

    played = Playback(RecordingFile(record("restart", tmp_path, watch)[-1]))
    replay, one = Replay(played.engine), next(played.records)
    assert len({found.answer for _, found in asked if found is not None}) >= 3, "the scene shows several states"
    for at, then in asked:
        while one is not None and (isinstance(one, Written) or one.now < at):
            assert replay.put(one) is None
            one = next(played.records, None)
        found = explain(replay.engine, "pod/tidb/demo-tikv-0", now=at, leader=then.leader if then else "")
        assert _words(found) == _words(then)


def _words(found):
    words = msgspec.to_builtins(found)
    if words is not None:
        words.pop("data_age_s")
    return words


def test_the_first_difference_is_named_with_both_sides():
    records = list(read(records_of(RESTART)))
    number, turn = next((i, one) for i, one in enumerate(records) if isinstance(one, Turn) and one.instructions)
    name, fields = turn.instructions[0]
    records[number] = msgspec.structs.replace(turn, instructions=((name, {**fields, "why": "another reason"}),))
    replay = Replay(Playback(RecordingFile(RESTART)).engine)
    difference = next(found for one in records if (found := replay.put(one)) is not None)
    assert difference.at == turn.now
    assert difference.place == 1
    assert difference.recorded[1]["why"] == "another reason"
    assert difference.computed == (name, fields)


def test_a_lost_event_shows_as_a_difference_and_exit_1(tmp_path, capsys):
    kept = [one for one in records_of(RESTART) if LeaseChanged.__name__.encode() not in one]
    cut = reframed(RESTART, tmp_path / "lost.blackbox", kept)
    assert run("replay", cut) == 1
    out = capsys.readouterr().out
    assert out.startswith("different: instruction 1 of turn ")
    assert "computed  nothing" in out
    assert run("replay", cut, "-o", "json") == 1
    assert json.loads(capsys.readouterr().out)["equal"] is False


def test_a_file_cut_at_any_byte_is_read_to_its_last_whole_frame(tmp_path):
    """Kill -9 while writing: nothing but the last frame is lost, and nothing is made up."""
    whole = records_of(RESTART)
    data = reframed(RESTART, tmp_path / "whole.blackbox", whole).read_bytes()
    header = len(header_line(RecordingFile(RESTART).header))
    cut, seen = tmp_path / "cut.blackbox", set()
    for length in range(0, len(data), 13):
        cut.write_bytes(data[:length])
        if length < header:
            with pytest.raises(BadRecordingError):
                RecordingFile(cut)
            continue
        found = records_of(cut)
        assert found == whole[: len(found)]
        seen.add(len(found))
    assert seen == set(range(len(whole)))


def frames_of(path):
    """Where the frames of a file with one part begin, and where the last ends."""
    data = path.read_bytes()
    at = [len(header_line(RecordingFile(path).header))]
    while at[-1] < len(data):
        at.append(at[-1] + 8 + int.from_bytes(data[at[-1] : at[-1] + 4], "big"))
    return at


def damaged(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << 4
    path.write_bytes(data)


@pytest.mark.parametrize("which", [0, 3, -2], ids=["first", "middle", "last"])
@pytest.mark.parametrize("place", [1, 2, 5, 20], ids=["longer", "long", "checksum", "inside"])
def test_a_recording_that_is_damaged_is_not_called_equal(which, place, tmp_path, capsys):
    """Only what a killed process did not write is passed over. A bit that flipped is named: where, when, and exit 2."""
    bad = reframed(RESTART, tmp_path / "bad.blackbox", records_of(RESTART))
    begins = frames_of(bad)[which]
    damaged(bad, begins + place)
    if which == -2 and place in {1, 2}:  # no more than cut off, as far as can be told
        assert run("replay", bad) == 0
        assert "not a whole frame" in capsys.readouterr().err
        return
    with pytest.raises(
        UserError, match=rf"part 0 is damaged at byte {begins}, after .*Z; up to there equal: "
    ) as error:
        run("replay", bad)
    assert error.value.code == 2
    assert "nothing after that can be read" in str(error.value)
    with pytest.raises(UserError, match="damaged"):
        run("blackbox", "redact", bad, "--to", tmp_path / "redacted")
    assert not (tmp_path / "redacted").exists()


def batch(events):
    made = Batch()
    made.add(7.25, 3, events, [])
    return made


def test_a_long_list_goes_in_parts_and_comes_back_whole():
    """No pause: a list of any length is made into records of a bounded size."""
    shape, owner = PodShape(labels={"app": "x"}), Owner("ReplicaSet", "x", "r1")
    pods = tuple(
        Pod("a", f"p{i}", f"u{i}", "1", shape, owner if i else None, annotations={"k": "v"} if i % 2 else {})
        for i in range(2 * PART + 7)
    )
    events = [
        Listed(Kind.POD, pods),
        Outcome(instruction="i1", reason=Reason.FAILED, kind=Kind.POD, object=pods[0]),
        Seen(Kind.POD, pods[5]),
        Outcome(instruction="i2", gone=Gone(Kind.POD, Key("a", "p1"), "u1")),
    ]
    records = list(Writer().turns(batch(events)))
    assert len(records) < 2 * 4 + 1
    assert list(read(records)) == [Turn(7.25, 3, tuple(events), ())]


def test_a_row_has_every_field_of_a_pod():
    """A field that is added to pods and not to their rows would be lost in replay."""
    assert set(PodRow.__struct_fields__) == set(Pod.__struct_fields__)


@pytest.mark.parametrize(
    "uids",
    [
        [],
        [A_UID, "00000000-0000-0000-0000-000000000000"],
        [A_UID.upper()],
        [A_UID, "u"],
        [A_UID[:-1], A_UID + "0"],
        [A_UID[:8] + A_UID[9:] + "-"],
        ["é" * 36],
        ["  " + A_UID[2:]],
    ],
)
def test_uids_are_packed_only_where_they_come_back_as_they_were(uids):
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(packed(uids)))
    assert unpacked(sent) == uids


SHAPE = PodShape()


def moved(uid, version="1"):
    """A pod that was known, and is Ready now: the event and what it changes."""
    old = Pod("a", "p", uid, "0", SHAPE)
    pod = msgspec.structs.replace(old, resource_version=version, ready=True)
    return Seen(Kind.POD, pod), (Change(Kind.POD, pod.key, old, pod),)


def told_in_brief(writer, uids, version):
    """The records of a turn in which pods of these uids become Ready."""
    made, events = Batch(), [moved(uid, version) for uid in uids]
    made.add(7.25, 3, [event for event, _ in events], [], [changed for _, changed in events])
    return list(writer.turns(made))


def known(uid):
    return Pod("a", "p", uid, "0", SHAPE)


def versions_of(turns):
    return [[(event.object.uid, event.object.resource_version) for event in turn.events] for turn in turns]


def test_a_uid_goes_once_in_a_part_and_is_named_by_number_from_then_on():
    writer, uids = Writer(), [A_UID, "u"]
    first, again = told_in_brief(writer, [*uids, A_UID], "1"), told_in_brief(writer, uids, "2")
    writer.begin()
    (next_part,) = told_in_brief(writer, uids, "3")
    assert b"u" not in again[0].replace(b"turns", b"")
    assert versions_of(read([*first, *again, next_part], known)) == [
        [(A_UID, "1"), ("u", "1"), (A_UID, "1")],
        [(A_UID, "2"), ("u", "2")],
        [(A_UID, "3"), ("u", "3")],
    ]
    assert versions_of(read([next_part], known)) == [[(A_UID, "3"), ("u", "3")]]
    with pytest.raises(BadRecordError, match="record 1"):
        list(read(again, known))


def test_of_what_changes_nothing_in_the_world_the_version_is_recorded():
    """O6, every input: a version and nothing else, a late one, and the answer of a write that is older than what was
    seen. Replayed, they change nothing either."""
    pod, made = known("u1"), Batch()
    still = Seen(Kind.POD, msgspec.structs.replace(pod, resource_version="7"))
    late = Outcome(instruction="i1", kind=Kind.POD, object=pod)
    odd = Seen(Kind.POD, msgspec.structs.replace(pod, resource_version="v7"))
    for given in ([(still, ()), moved("u2"), (late, ()), (Seen(Kind.POD, pod), ())], [(odd, ()), (still, ())]):
        made.add(7.25, 3, [event for event, _ in given], [], [changed for _, changed in given])
    first, second = read(Writer().turns(made), known)
    assert (first.events, first.unchanged) == ((moved("u2")[0], msgspec.structs.replace(late, object=None)), (7, 0))
    assert (second.events, second.unchanged) == ((odd,), (7,))


@pytest.mark.parametrize(
    ("phases", "read_as"), [("Failed", ["Failed"] * 2), (["Failed", "Running"], ["Failed", "Running"])]
)
def test_what_all_pods_of_a_column_have_goes_once(phases, read_as):
    (one,) = read([msgspec.msgpack.encode(column(phases))], known)
    assert [event.object.phase for event in one.events] == read_as


def test_what_a_part_named_is_let_go_a_little_at_a_time(monkeypatch):
    """No pause above 5 ms: names of 150,000 pods, freed in one go when the next part begins, take longer."""
    monkeypatch.setattr(brief, "LET_GO", 10)
    names, uids = brief.Names(), [f"uid-{i}" for i in range(35)]

    def references():
        return sum(sys.getrefcount(uid) for uid in uids)

    free, held = references(), []
    names.of(uids)
    names.begin()
    for _ in range(5):
        held.append(references() - free)
        names.of([])
    assert held == [35, 25, 15, 5, 0]


def test_names_do_not_pile_up_where_every_pod_is_a_new_one(monkeypatch):
    """What is held is bounded, however fast pods come and go."""
    monkeypatch.setattr(brief, "NAMED", 1000)
    monkeypatch.setattr(brief, "LET_GO", 10)
    names, most = brief.Names(), 0
    for number in range(0, 20_000, 100):
        names.of([f"uid-{i}" for i in range(number, number + 100)])
        most = max(most, len(names._held) + sum(len(held) for _, held in names._old))
    assert most <= 2000


def test_uids_that_are_no_longer_held_get_a_new_number(monkeypatch):
    monkeypatch.setattr(brief, "NAMED", 2)
    writer = Writer()
    told = [[f"u{i % 3}", f"u{i % 4}"] for i in range(9)]
    records = [one for uids in told for one in told_in_brief(writer, uids, "1")]
    assert [[uid for uid, _ in turn] for turn in versions_of(read(records, known))] == told


def test_shapes_that_are_no_longer_held_get_a_new_number(monkeypatch):
    monkeypatch.setattr(recording, "SHARED", 2)
    writer, seen = Writer(), []
    for i in range(9):
        seen.append(Seen(Kind.POD, Pod("a", "p", "u", str(i), PodShape(cpu_milli=i % 4))))
    turns = list(read([one for event in seen for one in writer.turns(batch([event]))]))
    assert [turn.events[0] for turn in turns] == seen


def test_what_is_no_recording_is_refused_in_words(tmp_path):
    (tmp_path / "x.blackbox").write_bytes(b"not a recording\n")
    (tmp_path / "y.blackbox").write_bytes(b'{"magic": "\xff"}\n')
    with pytest.raises(UserError, match="not a recording of Mooring"):
        run("replay", tmp_path / "x.blackbox")
    with pytest.raises(UserError, match="not a recording of Mooring"):
        run("replay", tmp_path / "y.blackbox")
    with pytest.raises(UserError, match="No such file"):
        run("replay", tmp_path / "none")
    with pytest.raises(BadRecordError, match="record 1"):
        list(read([b"\x93\x01\x02\x03"]))
    with pytest.raises(BadRecordError, match=r"record 1.*instruction"):
        list(read([msgspec.msgpack.encode(("turn", 1.0, 1, [("Outcome", {})], []))]))


def turn(events, *, now=1.0, decisions=1):
    return ["turn", now, decisions, events, []]


def turns(events=2, flags=None, uids=(A_UID, A_UID), whole=None):
    """A record of format 4: one turn with so many pods told in brief."""
    flags = msgspec.msgpack.Ext(2, b"\0\0") if flags is None else flags
    return ["turns", [[1.0, 1, events, []]], whole, [list(uids), ["1", "2"], flags, [], [], [], [], [], []]]


def unchanged(count, versions):
    """A record of format 5: one turn with so many updates that changed nothing."""
    numbers = [0, [], msgspec.msgpack.Ext(3, b"")]
    return ["turns", [[1.0, 1, 0, [], count]], None, [numbers, [], msgspec.msgpack.Ext(2, b""), *[[]] * 6], versions]


def column(phases):
    """A record of format 6: one turn with two pods told in brief, in these phases."""
    numbers, versions = [0, ["u1", "u2"], msgspec.msgpack.Ext(3, b"\0\0\0\0\1\0\0\0")], ["1", "2"]
    brief = [numbers, versions, None, None, phases, False, None, None, True]
    return ["turns", [[1.0, 1, 2, [], 0]], None, brief, msgspec.msgpack.Ext(4, b"")]


#: Records that no Mooring writes, by what is wrong with them. The first two were tracebacks.
MALFORMED = {
    "more pods than can be counted": turn(2**63),
    "flags that are no bytes": turns(flags=[0, 0]),
    "fewer than no pods": turn(-1),
    "more pods than there are": turns(events=3),
    "fewer flags than pods": turns(flags=msgspec.msgpack.Ext(2, b"\0")),
    "columns that are too few": turns(whole=[[]]),
    "more unchanged than there are": unchanged(2, msgspec.msgpack.Ext(4, b"\1" + b"\0" * 7)),
    "fewer unchanged than none": unchanged(-1, msgspec.msgpack.Ext(4, b"")),
    "a version that is cut off": unchanged(1, msgspec.msgpack.Ext(4, b"\1\0\0")),
    "versions that are no bytes": unchanged(1, [7]),
    "a column that is too short": column(["Running"]),
    "a column that is too long": column(["Running"] * 3),
    "a value of a column that is none": column(7),
    "a list with more objects than there are": turn([("Listed", "Node", 7)]),
    "a list with fewer objects than none": turn([("Listed", "Node", -1)]),
    "a shape that was not given": turn([("Pod", ["a", "p", "u", "1", 99, None, *[""] * 3])]),
    "a shape that is none": ["shared", [[2, "PodShape", {"labels": 1}]]],
    "a number that is none": ["shared", [["2", "PodShape", {}]]],
    "a time that cannot be written": turn(0, now=1e308),
    "a time that is none": turn(0, now=float("nan")),
    "decisions that are none": turn(0, decisions=-1),
    "a write to an index that is not there": ["written", "SomeBook", b""],
    "a write that is none": ["written", "SlotBook", b"\x01"],
    "a kind that is not there": ["part", "Secret", []],
    "an event without a name": turn([[]]),
    "an empty record": [],
    "no record": None,
}


@pytest.mark.parametrize("wrong", MALFORMED)
def test_a_malformed_record_is_damage_with_its_place_and_time(wrong, tmp_path):
    """Whatever a record says: one error that names part, byte and time, and exit 2; never a traceback."""
    bad = reframed(
        RESTART, tmp_path / "bad.blackbox", [*records_of(RESTART)[:9], msgspec.msgpack.encode(MALFORMED[wrong])]
    )
    begins = frames_of(bad)[-2]
    words = rf"part 0 is damaged at byte {begins}: record 10: .*, after 2026-.*Z; up to there equal: "
    with pytest.raises(UserError, match=words) as error:
        run("replay", bad)
    assert error.value.code == 2


@pytest.mark.parametrize("record", [b"\x93\x01", b"\xc1", b"\x91" * 5000, msgspec.msgpack.encode(["memory", b"\xc1"])])
def test_what_is_redacted_is_read_with_the_same_care(record, tmp_path):
    bad = reframed(RESTART, tmp_path / "bad.blackbox", [*records_of(RESTART)[:9], record])
    with pytest.raises(UserError, match=rf"part 0 is damaged at byte {frames_of(bad)[-2]}: record 10: "):
        run("blackbox", "redact", bad, "--names", "--to", tmp_path / "redacted")
    assert not (tmp_path / "redacted").exists()


def test_a_part_that_is_no_stream_is_damaged_there(tmp_path):
    frame = b"no zlib"
    data = header_line(RecordingFile(RESTART).header)
    (tmp_path / "bad.blackbox").write_bytes(data + struct.pack(">II", len(frame), zlib.crc32(frame)) + frame)
    with pytest.raises(UserError, match=rf"part 0 is damaged at byte {len(data)}: Error -3.*, after 2026-"):
        run("replay", tmp_path / "bad.blackbox")


def test_the_format_of_another_version_is_named(tmp_path):
    header = msgspec.structs.replace(RecordingFile(RESTART).header, format=99)
    (tmp_path / "x.blackbox").write_bytes(header_line(header))
    with pytest.raises(UserError, match="format 99"):
        run("replay", tmp_path / "x.blackbox")


@pytest.mark.parametrize("until", ["+2", "00:00:06", "2026-01-01T00:00:06Z", "op 1 promoted", "operator/1 promoted"])
def test_until_takes_times_and_operators(until, capsys):
    assert run("replay", RESTART, "--until", until) == 0
    assert capsys.readouterr().out.startswith("equal: ")


@pytest.mark.parametrize(
    ("until", "words"),
    [
        ("noon", "noon is not a moment; write 2026"),
        ("25:00:00", "write 2026"),
        ("2020-01-01", "begins at"),
        ("00:00:01", "is not in the recording, which begins at"),
        ("op 99 promoted", "never promoted"),
    ],
)
def test_a_moment_that_is_none_is_refused_in_words(until, words):
    with pytest.raises(UserError, match=words):
        run("replay", RESTART, "--until", until)


def test_questions_at_a_moment(capsys):
    """`why` and `queue` of the moment; a subject that is not there is said so."""
    assert run("replay", RESTART, "--until", "op 1 promoted", "why", "pod/demo-tikv-0", "-n", "tidb") == 0
    assert capsys.readouterr().out.startswith("demo-tikv-0 is moving")
    assert run("replay", RESTART, "--until", "op 1 promoted", "queue", "-o", "json") == 0
    assert [row["op"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["1"]
    with pytest.raises(UserError, match="demo-tikv-9"):
        run("replay", RESTART, "why", "pod/demo-tikv-9", "-n", "tidb")
    with pytest.raises(UserError, match="Which object"):
        run("replay", RESTART, "why")
