"""The snapshot's file: all of it or nothing, and nothing that is not one is taken for one."""

from pathlib import Path

import msgspec
import pytest

from mooring.core.model.kinds import Kind
from mooring_lab.rehearse.snapshot import schema
from mooring_lab.rehearse.snapshot.schema import BadSnapshotError, Snapshot


def test_what_is_written_is_read_back(demo: Snapshot, tmp_path: Path) -> None:
    """O4: one file holds everything, and the same bytes come out of the same snapshot."""
    path = tmp_path / "a.json"
    size = schema.write(demo, path)
    assert (schema.read(path), size) == (demo, path.stat().st_size)
    before = path.read_bytes()
    schema.write(schema.read(path), path)
    assert path.read_bytes() == before


def test_a_write_that_fails_leaves_what_was_there(
    demo: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O4: the file appears when it is whole; a full disk costs the new one, not the old one."""
    path = tmp_path / "a.json"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(schema.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        schema.write(demo, path)
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]


def test_only_its_owner_reads_a_snapshot(demo: Snapshot, tmp_path: Path) -> None:
    """O4: it names everything that runs in a cluster."""
    schema.write(demo, tmp_path / "a.json")
    assert (tmp_path / "a.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not a snapshot"),
        (b"\xff\xfe", "not a snapshot"),
        (b"[]", "not a snapshot"),
        (b"{}", "its format is ''"),
        (b'{"format": "mooring-rehearsal", "version": 99}', "version 99; this Mooring reads up to 2"),
        (b'{"format": "mooring-rehearsal", "version": 1}', "damaged"),
        (b"[" * 100_000, "not a snapshot"),
    ],
)
def test_what_is_no_snapshot_is_refused_in_a_sentence(body: bytes, said: str) -> None:
    """O4: damaged, newer, or another program's: never a traceback, never half a cluster."""
    with pytest.raises(BadSnapshotError) as error:
        schema.parse(body, "x.json")
    assert said in str(error.value)
    assert "x.json" in str(error.value)


def test_a_file_cut_off_in_the_middle_is_damaged(demo: Snapshot) -> None:
    """O4: a copy that was interrupted is no smaller cluster."""
    body = msgspec.json.encode(demo)
    for end in (len(body) // 3, len(body) // 2, len(body) - 1):
        with pytest.raises(BadSnapshotError):
            schema.parse(body[:end], "x.json")


@pytest.mark.parametrize(
    ("kind", "obj", "said"),
    [
        (Kind.POD, {"spec": {}}, "objects.Pod[0]: no metadata"),
        (Kind.POD, {"metadata": {"name": "a", "uid": "1"}}, "no metadata.namespace"),
        (Kind.NODE, {"metadata": {"name": "a", "uid": ""}}, "no metadata.uid"),
        (Kind.NODE, {"metadata": {"name": "a", "uid": "1"}, "spec": []}, "spec is not an object"),
        (
            Kind.DEPLOYMENT,
            {"metadata": {"name": "a", "uid": "1", "namespace": "b"}, "spec": {"template": None}},
            "no spec.template.spec",
        ),
        (
            Kind.DEPLOYMENT,
            {"metadata": {"name": "a", "uid": "1", "namespace": "b"}, "spec": {"template": "x"}},
            "no spec.template.spec",
        ),
        (
            Kind.CONFIG_MAP,
            {"metadata": {"name": "a", "uid": "1", "namespace": "b"}, "spec": "x"},
            "spec is not an object",
        ),
    ],
)
def test_an_object_that_cannot_stand_is_named(kind: Kind, obj: dict[str, object], said: str, demo: Snapshot) -> None:
    """O4: which object, and what it lacks."""
    broken = msgspec.structs.replace(demo, objects={kind.value: [obj]})
    with pytest.raises(BadSnapshotError) as error:
        schema.parse(msgspec.json.encode(broken), "x.json")
    assert said in str(error.value)


def test_a_kind_that_no_snapshot_has_is_refused(demo: Snapshot) -> None:
    """O4: a Secret that found its way into a file is not loaded."""
    broken = msgspec.structs.replace(demo, objects={"Secret": [{"metadata": {"name": "a"}}]})
    with pytest.raises(BadSnapshotError, match=r"objects\.Secret"):
        schema.parse(msgspec.json.encode(broken), "x.json")
