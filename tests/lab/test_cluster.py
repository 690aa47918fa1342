"""A lab's directory: what is refused, remembered and removed. No server is started here."""

from pathlib import Path

import msgspec
import pytest

from mooring_lab.control.binaries import NEEDED, Binaries, release
from mooring_lab.control.cluster import Lab, LabState
from mooring_lab.control.controlplane import Ports
from mooring_lab.control.errors import LabError, WrongRequestError
from mooring_lab.control.loopback import OURS

PORTS = Ports(etcd=1, etcd_peer=2, apiserver=3, controller_manager=4, scheduler=5, kwok=6)


@pytest.fixture
def binaries(tmp_path: Path) -> Binaries:
    """Programs that end at once: nothing can come up with them."""
    directory = tmp_path / "programs"
    directory.mkdir()
    for name in NEEDED:
        (directory / name).write_text("#!/bin/sh\necho broken on purpose; exit 1\n")
        (directory / name).chmod(0o755)
    return Binaries(release=release("1.36", {}), paths={name: directory / name for name in NEEDED})


def remembered(directory: Path) -> Lab:
    """A lab that was started some time ago and has died since."""
    directory.mkdir()
    state = LabState(release=release("1.36", {}), ports=PORTS, binaries={})
    (directory / "lab.json").write_bytes(msgspec.json.encode(state))
    lab = Lab.open(directory)
    assert lab is not None
    return lab


def test_a_strangers_directory_is_refused_untouched(tmp_path: Path, binaries: Binaries):
    """A directory with anything that no lab wrote is not used, and stays as it is."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.txt").write_text("years of work")
    with pytest.raises(WrongRequestError, match=r"holds thesis\.txt.*--dir"):
        Lab.up(home, binaries)
    assert [path.name for path in home.iterdir()] == ["thesis.txt"]


def test_unknown_neighbour_is_refused_before_anything_starts(tmp_path: Path, binaries: Binaries):
    """`--with` something the lab does not know is said at once."""
    with pytest.raises(WrongRequestError, match="--with mysql: the lab knows pd and sabakan"):
        Lab.up(tmp_path / "lab", binaries, extras=["mysql"])
    assert not (tmp_path / "lab").exists()


def test_failed_start_leaves_only_the_log_that_says_why(tmp_path: Path, binaries: Binaries):
    """When a server dies on start, nothing runs and nothing but the logs is left; the next start is not hindered."""
    for _ in range(2):
        with pytest.raises(LabError, match="etcd ended before it was ready:\nbroken on purpose"):
            Lab.up(tmp_path / "lab", binaries)
        assert [path.name for path in (tmp_path / "lab").iterdir()] == ["logs"]


def test_no_lab_is_not_an_error(tmp_path: Path):
    """Opening a directory without a lab finds none."""
    assert Lab.open(tmp_path) is None


def test_spoiled_note_is_named(tmp_path: Path):
    """A lab.json that no lab wrote is an error with the file's name."""
    (tmp_path / "lab.json").write_text("{}")
    with pytest.raises(LabError, match=r"lab\.json is not what a lab writes"):
        Lab.open(tmp_path)


def test_dead_lab_is_known_to_be_dead(tmp_path: Path):
    """Every server of a lab that died is listed, without a pid."""
    pids = remembered(tmp_path / "lab").pids()
    assert list(pids)[:2] == ["etcd", "kube-apiserver"]
    assert set(pids.values()) == {None}


def test_down_removes_its_own_and_nothing_else(tmp_path: Path):
    """A file somebody put into the lab's directory survives; without one the directory goes too."""
    for name, guests in (("alone", []), ("shared", ["mine.yaml"])):
        lab = remembered(tmp_path / name)
        for own in OURS[2:]:
            (tmp_path / name / own).mkdir()
        for guest in guests:
            (tmp_path / name / guest).touch()
        lab.down()
        left = sorted(path.name for path in (tmp_path / name).iterdir()) if (tmp_path / name).exists() else []
        assert left == guests
    assert not (tmp_path / "alone").exists()


def test_unknown_component_is_named_with_those_there_are(tmp_path: Path):
    """Stopping something the lab does not have says what it has."""
    with pytest.raises(WrongRequestError, match="the lab has no kubelet; it has etcd, kube-apiserver"):
        remembered(tmp_path / "lab").stop("kubelet")


def test_absent_neighbours_are_said_plainly(tmp_path: Path):
    """Without their programs, PD and sabakan are not pretended: asking for them says why not, and what to type."""
    lab = remembered(tmp_path / "lab")
    with pytest.raises(LabError, match="mooring lab add pd-server=PATH"):
        lab.start_pd()
    with pytest.raises(LabError, match="mooring lab add sabakan=PATH"):
        lab.start_sabakan()
