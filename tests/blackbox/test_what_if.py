"""Issue 23, what if: from a moment of a recording on with other settings, and rehearsals on it."""

import json

import pytest

from mooring.cli import _typed, app
from mooring.core.model.exits import UserError
from mooring.core.model.kinds import Kind
from mooring_lab.rehearse.from_world import snapshot_at
from mooring_lab.rehearse.snapshot.schema import _check
from tests.blackbox.environment import INCIDENTS, replayed

TWO, MODE = INCIDENTS / "two-restarts.blackbox", INCIDENTS / "mode-change.blackbox"


def run(*words):
    return app(_typed([*map(str, words)]), exit_on_error=False, print_error=False, result_action="return_value")


@pytest.mark.parametrize("path", sorted(INCIDENTS.glob("*.blackbox")), ids=lambda path: path.stem)
def test_the_world_of_a_recording_is_a_snapshot(path):
    """Every object that is known is in it, under its own uid."""
    taken = snapshot_at(str(path), print)
    _check(taken)
    _, replay = replayed(path)
    assert taken.of(Kind.NODE)
    uids = [pod["metadata"]["uid"] for pod in taken.of(Kind.POD)]
    assert sorted(uids) == sorted(pod.uid for pod in replay.engine.world.pods()) != []


def test_it_goes_on_with_other_settings(capsys):
    """Both restarts are asked for and none has begun: with handoff off, neither does; as recorded, both are done."""
    words = ("replay", TWO, "--until", "+2", "--for", "10m", "-o", "json", "--set")
    assert run(*words, "handoff.recheck-s=5") == 0
    as_before = json.loads(capsys.readouterr().out)
    assert run(*words, "features={handoff: false}") == 0
    without = json.loads(capsys.readouterr().out)
    assert as_before["changed"]["handoff finished"] == as_before["recorded"]["handoff finished"] >= 2
    assert "handoff queued" not in without["changed"]
    assert "handoff finished" not in without["changed"]
    assert without["recorded"] == as_before["recorded"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("mix", "KEY=VALUE"),
        ("mix.no-such=1", "no-such"),
        ("mix.speed=60", r"unknown setting 'mix.speed'; there are .*mix.rebalance.…, mix.reclaim-s"),
        ("mix.price=60", r"unknown setting 'mix.price'; did you mean mix.prices\?"),
        ("mix.rebalance.return-every=60", r"did you mean mix.rebalance.return-every-s\?"),
        ("mixx.a=1", r"did you mean mix\?"),
        ("handoff.recheck-s=soon", "recheck-s"),
        ("mix.mode=[", "not a value"),
        ("handoff.recheck-s.more=1", "there is no"),
    ],
)
def test_a_setting_that_is_none_is_refused_in_words(change, words):
    with pytest.raises(UserError, match=words):
        run("replay", TWO, "--set", change)


def test_that_nothing_happens_is_said(capsys):
    """An empty table says nothing."""
    assert run("replay", TWO, "--until", "+1", "--for", "1s", "--set", "features={handoff: false}") == 0
    out = capsys.readouterr().out
    assert out.startswith("nothing happens within 1 s of 2026-01-01T00:00:0")
    assert out.endswith(", as recorded and with these settings\n")
    assert run("replay", TWO, "--until", "+2", "--for", "10m", "--set", "features={handoff: false}") == 0
    out = capsys.readouterr().out
    assert "handoff finished" in out
    assert "nothing happens within 600 s of" in out


def test_a_rehearsal_begins_at_a_moment_of_a_recording(capsys):
    """`mooring rehearse play … --from blackbox FILE@TIME`."""
    assert run("rehearse", "play", "restart", "tidb/demo", "--from", "blackbox", f"{TWO}@+1", "-o", "json") in {0, 1}
    assert "recording of" in capsys.readouterr().out
    with pytest.raises(UserError, match="begins at"):
        run("rehearse", "play", "restart", "tidb/demo", "--from", f"{TWO}@2020-01-01")
