"""Issue 23, hand over: a recording for a bug report, without logins and, if wanted, without names."""

import re

import msgspec
import pytest

from mooring.capabilities.fleet.live.store import Decisions, decode_decisions, encode_decisions
from mooring.capabilities.fleet.planner.current import Member
from mooring.cli import app
from mooring.core.engine.events import Tick
from mooring.core.model.cluster import ConfigMap, Key
from mooring.core.model.events import PdLost, Seen
from mooring.core.model.exits import UserError
from mooring.core.model.kinds import Kind
from mooring.process.blackbox.file import RecordingFile
from mooring.process.blackbox.writer import BlackBox, header_of
from mooring.process.settings.config import Config
from tests.blackbox.environment import INCIDENTS, record, records_of, reframed, replayed
from tests.blackbox.test_checkpoint import checkpointed


def run(*words):
    return app([*map(str, words)], exit_on_error=False, print_error=False, result_action="return_value")


def texts(path):
    """All that a recording says, decompressed."""
    return b"".join(record for part in RecordingFile(path).parts for record in part.records())


@pytest.mark.parametrize("path", sorted(INCIDENTS.glob("*.blackbox")), ids=lambda path: path.stem)
def test_a_recording_with_pseudonyms_replays_equal(path, tmp_path, capsys):
    """Ties break by name, so pseudonyms sort as names do; a digest of names is that of their pseudonyms."""
    to = tmp_path / "redacted.blackbox"
    assert run("blackbox", "redact", path, "--names", "--to", to) == 0
    assert re.search(rb"\bdemo\b", texts(to)) is None
    assert replayed(to)[1].instructions == replayed(path)[1].instructions


def test_the_same_word_has_the_same_pseudonym_in_checkpoints_too(tmp_path):
    record("restart", tmp_path / "box", checkpointed(10))
    to = tmp_path / "redacted.blackbox"
    assert run("blackbox", "redact", tmp_path / "box", "--names", "--to", to) == 0
    parts = RecordingFile(to).parts
    assert len(parts) > 2
    assert re.search(rb"\bdemo\b", texts(to)) is None
    difference, _ = replayed(to, at=parts[-2].header.started_at)
    assert difference is None


def test_logins_and_tokens_are_taken_out(tmp_path):
    """As of a snapshot: who logs in where. And what a server may have repeated of us."""
    box = BlackBox(tmp_path / "box", header_of(Config(), "one", 1.0), 1 << 20, lambda _: None)
    said = "GET https://ann:pa55word@pd.example:2379 failed: Bearer abc.def.ghi123 is not valid"
    box.turn(1.0, 1, [PdLost(Key("a", "b"), said, 1.0), Tick()], [])
    box.close()
    to = tmp_path / "redacted.blackbox"
    assert run("blackbox", "redact", tmp_path / "box", "--to", to) == 0
    (turn,) = (msgspec.msgpack.decode(one) for one in records_of(to))
    assert turn[1][0][2][0][1]["detail"] == "GET https://pd.example:2379 failed: Bearer  is not valid"


def test_names_are_replaced_in_what_a_large_fleet_keeps_compressed(tmp_path):
    members = tuple(Member(f"10.0.{i // 250}.{i % 250}", False, None, f"acme{i}") for i in range(300))
    stored = encode_decisions(
        Decisions("0123456789abcdef", (Member("10.9.9.9", True, None, "acme"), *members))
    ).decode()
    assert stored.startswith("zlib:")
    box = BlackBox(tmp_path / "box", header_of(Config(), "one", 1.0), 1 << 20, lambda _: None)
    box.turn(1.0, 1, [Seen(Kind.CONFIG_MAP, ConfigMap("a", "b", "u", "1", data={"decisions": stored}))], [])
    box.close()
    to = tmp_path / "redacted.blackbox"
    assert run("blackbox", "redact", tmp_path / "box", "--names", "--to", to) == 0
    (turn,) = (msgspec.msgpack.decode(one) for one in records_of(to))
    found = decode_decisions(turn[1][0][2][0][2]["data"]["decisions"].encode()).members
    assert [m.address for m in found[1:]] == [m.address for m in members]
    assert not any("acme" in m.serial for m in found)
    assert len({m.serial for m in found}) == 301


def test_it_is_for_its_owner_alone_to_read(tmp_path):
    """Without --names it has the names of a cluster in it."""
    to = tmp_path / "redacted.blackbox"
    assert run("blackbox", "redact", INCIDENTS / "restart.blackbox", "--to", to) == 0
    assert to.stat().st_mode & 0o777 == 0o600


def test_a_recording_that_cannot_be_read_leaves_no_half_of_a_file(tmp_path):
    bad = reframed(INCIDENTS / "restart.blackbox", tmp_path / "bad.blackbox", [b"\xc1"])
    with pytest.raises(UserError, match="bad"):
        run("blackbox", "redact", bad, "--to", tmp_path / "redacted.blackbox")
    assert not (tmp_path / "redacted.blackbox").exists()


def test_a_file_that_is_there_is_not_replaced(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UserError, match="File exists"):
        run("blackbox", "redact", INCIDENTS / "restart.blackbox", "--to", tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"
