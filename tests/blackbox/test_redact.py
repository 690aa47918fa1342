"""Issue 23, hand over: a recording for a bug report, without logins and, if wanted, without names."""

import re
from ipaddress import ip_address

import msgspec
import pytest

from mooring.capabilities.fleet.live.ledger import Decisions, decode_decisions, encode_decisions
from mooring.capabilities.fleet.planner.current import Member
from mooring.cli import app
from mooring.core.engine.events import Tick
from mooring.core.engine.recording.replay import Replay
from mooring.core.model.cluster import ConfigMap, Key, Owner, ReplicaSet
from mooring.core.model.events import PdLost, Seen
from mooring.core.model.exits import UserError
from mooring.core.model.kinds import Kind
from mooring.process.blackbox.file import FrameWriter, RecordingFile, header_line
from mooring.process.blackbox.playback import Playback
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


def renamed(value, words):
    """The same recording of a cluster whose names are others."""
    match value:
        case str():
            return re.sub(rf"\b(?:{'|'.join(words)})\b", lambda found: words[found[0]], value)
        case bytes():
            return msgspec.msgpack.encode(renamed(msgspec.msgpack.decode(value), words))
        case list():
            return [renamed(one, words) for one in value]
        case dict():
            return {renamed(key, words): renamed(one, words) for key, one in value.items()}
    return value


def strings(value):
    match value:
        case str():
            yield value
        case bytes():
            yield from strings(msgspec.msgpack.decode(value))
        case list():
            for one in value:
                yield from strings(one)
        case dict():
            yield from strings([*value, *value.values()])


NODES = {"n0": "10.68.0.10", "n1": "10.68.0.9", "n2": "10.68.3.4", "s0": "10.69.0.10", "s1": "10.69.0.9"}


@pytest.mark.parametrize("namespace", ["drain", "pod", "mix", "turns"])
def test_a_name_is_hidden_for_what_it_names_not_for_how_it_is_spelled(namespace, tmp_path):
    """Issue 34: a namespace called like a word of ours, and nodes called by their addresses (CKE)."""
    source = INCIDENTS / "notice.blackbox"
    words = {"shop": namespace, **NODES}
    own = reframed(
        source,
        tmp_path / "own.blackbox",
        [msgspec.msgpack.encode(renamed(msgspec.msgpack.decode(one), words)) for one in records_of(source)],
    )
    assert replayed(own)[0] is None
    to = tmp_path / "redacted.blackbox"
    assert run("blackbox", "redact", own, "--names", "--to", to) == 0
    found = [text for one in records_of(to) for text in strings(msgspec.msgpack.decode(one))]
    assert not [text for text in found for node in NODES.values() if node in text]
    # As a kind or a source our word stays; beside a name, or as the value of a field that holds a name, it does not.
    assert not [text for text in found if re.search(rf"/{namespace}/|{namespace}/web", text)]
    file = Playback(RecordingFile(to))
    replay = Replay(file.engine)
    for one in file.records:
        assert replay.put(one) is None
    pods = file.engine.world.pods()
    assert pods
    assert not {pod.namespace for pod in pods} & {namespace}
    assert {str(ip_address(pod.node)) for pod in pods if pod.node}.isdisjoint(NODES.values())


def test_addresses_stay_addresses_and_sort_as_before(tmp_path):
    """As numbers and as texts: ties between nodes that are called by their addresses break by the text."""
    ours = [f"10.{a}.{b}.{c}" for a in (0, 69) for b in (1, 9, 10, 200) for c in (0, 3, 25, 100, 255)]
    ours += ["192.168.3.4", "fd00::a", "fd00::2", "2001:db8:5::1"]
    box = BlackBox(tmp_path / "box", header_of(Config(), "one", 1.0), 1 << 20, lambda _: None)
    box.turn(1.0, 1, [PdLost(Key("a", "b"), " ".join(f"{one}, ip-10-0-0-7.east" for one in ours), 1.0)], [])
    box.close()
    to = tmp_path / "redacted.blackbox"
    assert run("blackbox", "redact", tmp_path / "box", "--names", "--to", to) == 0
    (turn,) = (msgspec.msgpack.decode(one) for one in records_of(to))
    said = turn[1][0][2][0][1]["detail"]
    theirs = [one.rstrip(",") for one in said.split()[::2]]
    assert "10-0-0-7" not in said
    assert len(set(theirs)) == len(ours) and set(theirs).isdisjoint(ours)
    numbers = [int(ip_address(one)) for one in theirs[:-3]]
    assert sorted(range(len(ours) - 3), key=lambda n: numbers[n]) == sorted(
        range(len(ours) - 3), key=lambda n: int(ip_address(ours[n]))
    )
    assert sorted(range(len(ours)), key=lambda n: theirs[n]) == sorted(range(len(ours)), key=lambda n: ours[n])
    assert all(ip_address(one).version == 6 for one in theirs[-3:])


def test_the_same_word_has_the_same_pseudonym_in_checkpoints_too(tmp_path):
    record("restart", tmp_path / "box", checkpointed(10))
    to = tmp_path / "redacted.blackbox"
    assert run("blackbox", "redact", tmp_path / "box", "--names", "--to", to) == 0
    parts = RecordingFile(to).parts
    assert len(parts) > 2
    assert re.search(rb"\bdemo\b", texts(to)) is None
    difference, _ = replayed(to, at=parts[-2].header.started_at)
    assert difference is None


@pytest.mark.parametrize("name", ["drain", "workload"])
def test_a_checkpoint_tells_a_namespace_from_a_feature_of_the_same_name(name, tmp_path):
    """Issue 34: the engine's memory has both; the words of ours in it stay, or no version could read it."""
    record("notice", tmp_path / "box", checkpointed(20))
    own = tmp_path / "own.blackbox"
    with own.open("wb") as file:
        for part in RecordingFile(tmp_path / "box").parts:
            file.write(header_line(part.header))
            frames = FrameWriter()
            for one in part.records():
                file.write(frames.frame([msgspec.msgpack.encode(renamed(msgspec.msgpack.decode(one), {"shop": name}))]))
    to = tmp_path / "redacted.blackbox"
    assert run("blackbox", "redact", own, "--names", "--to", to) == 0
    last = RecordingFile(to).parts[-1]
    assert last.header.number > 0
    assert replayed(to, at=last.header.started_at)[0] is None
    assert re.search(rf"[/ ]{name}/web".encode(), texts(to)) is None


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


def test_a_kind_of_their_own_and_the_host_that_recorded_are_hidden_too(tmp_path):
    """A field for words of a vocabulary may hold one of theirs; of ours it keeps, whatever a namespace is called."""
    box = BlackBox(tmp_path / "box", header_of(Config(), "anns-laptop", 1.0), 1 << 20, lambda _: None)
    owner = Owner("AcmeSet", "x", "u", api_version="acme.io/v1")
    box.turn(1.0, 1, [Seen(Kind.REPLICA_SET, ReplicaSet("b", "x", "v", "1", owner=owner))], [])
    box.close()
    to = tmp_path / "redacted.blackbox"
    assert run("blackbox", "redact", tmp_path / "box", "--names", "--to", to) == 0
    said = texts(to) + header_line(RecordingFile(to).header)
    assert re.search(rb"(?i)acme|laptop", said) is None
    assert b"ReplicaSet" in said


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
    assert not {m.address for m in found} & {m.address for m in members}
    assert sorted(found[1:], key=lambda m: ip_address(m.address)) == list(found[1:])
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
