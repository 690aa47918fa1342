"""The black box never holds deciding up, and never holds more than its bound."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from mooring.core.engine.events import Tick
from mooring.core.engine.recording.reading import read
from mooring.core.engine.recording.records import PART
from mooring.core.model.cluster import Pod, PodShape
from mooring.core.model.events import Listed, Seen
from mooring.core.model.kinds import Kind
from mooring.process.blackbox import ring
from mooring.process.blackbox import writer as blackbox
from mooring.process.blackbox.file import recordings
from mooring.process.blackbox.writer import BlackBox, header_of
from mooring.process.settings.config import BlackBoxSettings, Config
from tests.blackbox.environment import SCENARIOS, records_of, replayed

HEADER = header_of(Config(http_token="secret", extender_token="secret"), "one", 1_767_225_600.0)


def box_in(directory, size=1 << 20):
    told = []
    return BlackBox(directory, HEADER, size, told.append), told


def test_what_was_given_is_in_the_file(tmp_path):
    box, told = box_in(tmp_path)
    for number in range(100):
        box.turn(float(number), number, [Tick()], [])
    box.close()
    (path,) = recordings(tmp_path)
    assert not told
    assert len(records_of(path)) == 100


def test_no_secret_is_in_the_header(tmp_path):
    box, _ = box_in(tmp_path)
    box.close()
    assert b"secret" not in recordings(tmp_path)[0].read_bytes()


def test_nobody_else_may_read_it(tmp_path):
    box, _ = box_in(tmp_path)
    box.close()
    assert recordings(tmp_path)[0].stat().st_mode & 0o777 == 0o600


def test_two_of_one_second_do_not_overwrite_each_other(tmp_path):
    for _ in range(2):
        box, _ = box_in(tmp_path)
        box.close()
    assert len(recordings(tmp_path)) == 2


def test_a_directory_that_cannot_be_made_stops_the_recording_and_says_so_once(tmp_path):
    (tmp_path / "file").write_text("")
    box, told = box_in(tmp_path / "file" / "box")
    box._files.thread.join(5)
    for _ in range(3):
        box.turn(1.0, 1, [Tick()], [])
    box.close()
    assert len(told) == 1
    assert "Not a directory" in told[0]


def test_a_recording_that_has_stopped_holds_nothing_of_what_comes_later(tmp_path):
    """A disk that is full for a week must not fill the memory as well."""
    (tmp_path / "file").write_text("")
    told = []
    box = BlackBox(tmp_path / "file" / "box", HEADER, 1 << 20, told.append, None, lambda *_: None)
    box._files.thread.join(5)
    pod = Seen(Kind.POD, Pod("a", "p", "u", "1", PodShape()))
    for number in range(3 * blackbox.TOGETHER):
        box.turn(float(number), 1, [pod], [], [()])
    box.written("SlotBook", Tick())
    assert told
    assert not box._to_make
    assert box._batch is None
    box.close()


def test_the_bound_holds_and_earlier_recordings_go_first(tmp_path):
    earlier = tmp_path / "earlier.blackbox"
    earlier.write_bytes(b"x" * 7000)
    live = tmp_path / "live.blackbox"
    live.write_bytes(b"x" * 100)
    os.utime(earlier, (0, 0))
    box, told = box_in(tmp_path, size=8192)
    box.turn(1.0, 1, [_pods(PART, "a")], [])
    _flush(box)
    assert not earlier.exists()
    assert not told
    box.turn(2.0, 1, [_pods(360, "b")], [])
    for number in range(12):
        box.turn(2.5 + number, 1, [Tick()], [])
        _flush(box)
    box.close()
    assert len(told) == 1
    assert "blackbox.size" in told[0]
    assert live.exists(), "another process may still write it"
    (path,) = set(recordings(tmp_path)) - {live}
    assert path.stat().st_size <= 8192 - 100
    assert len(records_of(path)) == 1


def _pods(count, name):
    import hashlib

    shape, random = PodShape(), [hashlib.sha256(f"{name}{i}".encode()).hexdigest() for i in range(count)]
    return Listed(Kind.POD, tuple(Pod("a", text, text, "1", shape) for text in random))


def _flush(box):
    """Until the thread has written what it was given."""
    for _ in range(500):
        box._files._wake.set()
        box._files.thread.join(0.01)
        if box._files.stopped or not box._files.waiting:
            box._files.thread.join(0.05)
            return


def test_a_disk_that_does_not_keep_up_stops_the_recording(tmp_path, monkeypatch):
    monkeypatch.setattr(blackbox, "BACKLOG_BYTES", 10)
    monkeypatch.setattr(blackbox.Files, "_take", lambda self: [])
    box, told = box_in(tmp_path)
    for _ in range(5):
        box.turn(1.0, 1, [Tick()], [])
    box.close()
    assert len(told) == 1
    assert "too slow" in told[0]


def test_what_cannot_be_recorded_does_not_reach_the_deciding(tmp_path):
    box, told = box_in(tmp_path)
    box.turn(1.0, 1, [object()], [])
    box.turn(2.0, 1, [Tick()], [])
    box.close()
    assert "could not be recorded" in told[0]


def test_a_long_list_is_made_over_several_turns(tmp_path):
    """No pause: a turn makes a bounded number of records; those after it keep their place."""
    box, _ = box_in(tmp_path, size=100 << 20)
    box.turn(1.0, 1, [_pods(3000, "a")], [])
    assert box._to_make
    for number in range(140):
        box.turn(2.0 + number, 1, [Tick()], [])
    assert not box._to_make
    box.close()
    turns = list(read(records_of(recordings(tmp_path)[0])))
    assert [turn.now for turn in turns] == [1.0, *(2.0 + number for number in range(140))]
    assert len(turns[0].events[0].objects) == 3000


def test_a_broken_disk_costs_a_replica_its_recording_and_nothing_else(tmp_path):
    """Issue 23: metric and Event, and the restart goes on to its end."""
    (tmp_path / "file").write_text("")
    scenario = SCENARIOS["restart"]()
    rig = scenario.rig()
    rig.config = msgspec.structs.replace(rig.config, blackbox=BlackBoxSettings(dir=str(tmp_path / "file" / "box")))
    found = {}

    async def play(rig):
        await scenario.build(rig)
        replica = rig.start()
        replica.blackbox._files.thread.join(5)
        await rig.until(rig.leads)
        await scenario.act(rig)
        await rig.until(lambda: scenario.done(rig), limit_s=3600.0)
        found["metrics"] = replica.metrics.render()
        found["events"] = [e["message"] for e in rig.cluster.store.list(Kind.EVENT) if e["reason"] == "BlackboxStopped"]

    rig.play(play)
    assert b"mooring_blackbox_stopped 1.0" in found["metrics"]
    assert len(found["events"]) == 1
    assert "Not a directory" in found["events"][0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_full_disk_ends_the_recording_in_a_sentence_and_what_was_written_stays_readable(tmp_path, monkeypatch):
    """Issue 23: the next part cannot even have its first line."""
    box, told = box_in(tmp_path)
    box.turn(1.0, 1, [Tick()], [])
    _flush(box)
    create = ring._create

    def full(directory, header):
        path, file = create(directory, header)
        file.close()
        return path, Path("/dev/full").open("wb")

    monkeypatch.setattr(ring, "_create", full)
    box._files.give(msgspec.structs.replace(HEADER, number=1))
    box._files._wake.set()
    box._files.thread.join(5)
    box.turn(2.0, 1, [Tick()], [])
    box.close()
    assert len(told) == 1
    assert "No space left on device" in told[0]
    assert len(recordings(tmp_path)) == 2, "the second is empty"
    assert len(records_of(tmp_path)) == 1


#: Records without an end, a checkpoint at times, and says which turn the thread that writes has come to.
RECORDS = """
import sys
from pathlib import Path
from mooring.core.model.events import Seen
from mooring.core.model.kinds import Kind
from tests.blackbox.test_checkpoint import Recorded, _pod

made = Recorded(Path(sys.argv[1]), 10 << 20)
while True:
    made.give(Seen(Kind.POD, _pod(int(made.now) % 500, int(made.now) + 2, node=f"n{made.now % 7}")))
    made.flush()
    print(made.now, flush=True)
    if made.now in (200.0, 400.0):
        made.box.begin_part()
"""


def test_what_was_written_before_kill_9_is_readable_to_the_last_whole_record(tmp_path):
    """E5 and O6: a process that is killed while it writes closes nothing. And then half a frame is lost, too."""
    records, root = [sys.executable, "-c", RECORDS, tmp_path], Path(__file__).parents[2]
    with subprocess.Popen(records, stdout=subprocess.PIPE, text=True, cwd=root) as child:
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(500)]
        child.kill()
        said += [line for line in child.stdout if line.endswith("\n")]
    assert child.returncode == -signal.SIGKILL
    difference, replay = replayed(tmp_path)
    assert difference is None
    # While one is being written, the one before it is on the disk.
    assert replay.engine.now >= float(said[-1]) - 1.0
    path = recordings(tmp_path)[-1]
    whole = records_of(path)
    os.truncate(path, path.stat().st_size - 3)
    cut = records_of(path)
    assert whole[: len(cut)] == cut != whole
    difference, shorter = replayed(tmp_path)
    assert difference is None
    assert shorter.turns < replay.turns
