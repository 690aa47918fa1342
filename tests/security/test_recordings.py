"""Recordings that somebody sends: they take bounded memory, and make nothing but values of ours
(`tests/blackbox/test_checkpoint.py` shows the latter)."""

import msgspec
import pytest

from mooring.core.engine.recording.reading import read
from mooring.core.engine.recording.records import BadRecordError
from mooring.process.blackbox.file import DamagedError, RecordingFile
from tests.blackbox.environment import INCIDENTS, reframed

ANY = INCIDENTS / "restart.blackbox"


@pytest.mark.parametrize("record", [b"\0" * (33 << 20), b"\x92\xa4turn\xdd" + b"\x90" * (24 << 20)])
def test_a_small_file_unpacks_to_little(record, tmp_path):
    """M7: a recording of 1.6 MB became 1.9 GB."""
    made = RecordingFile(reframed(ANY, tmp_path / "bomb.blackbox", [record]))
    assert made.path.stat().st_size < 1 << 20
    with pytest.raises(DamagedError):
        list(made.parts[0].records())


def test_a_record_that_is_dense_is_not_decoded():
    """M7: in msgpack one byte is a list of 64 bytes."""
    with pytest.raises(BadRecordError, match="more values"):
        list(read([msgspec.msgpack.encode(["memory", [[] for _ in range(1 << 20)]])]))
