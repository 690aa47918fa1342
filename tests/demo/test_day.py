"""The demo's day: what it promises on the screen is checked here, at the speed of the machine."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from mooring.core.model.kinds import Kind
from mooring.core.model.times import moment
from mooring_lab.cluster.cloud import INTERRUPT_AT
from mooring_lab.demo import without
from mooring_lab.demo.acts import ACTS, LAB_ACTS
from mooring_lab.demo.acts.drain import KubectlDrain
from mooring_lab.demo.day import Day
from mooring_lab.demo.page import totals
from mooring_lab.demo.stage import Check
from mooring_lab.judge.losses import Losses

MOORING = Path(sys.executable).parent / "mooring"


class Watcher:
    """Somebody who watches the page: what is to be seen at each moment, in seconds of theirs, as the day is paced."""

    EVERY_S = 0.5

    def __init__(self, day):
        self._stage = day.stage
        self.watched_s = self.still_s = self.longest_still_s = 0.0
        self._still_for_s = 0.0
        #: When each line was said.
        self.said_at = []

    async def start(self):
        self._task = asyncio.create_task(self._look())

    async def keep(self):
        pass

    async def stop(self):
        self._task.cancel()

    async def _look(self):
        while True:
            self.look(self.EVERY_S / self._stage.pace())
            await self._stage.rig.sleep(self.EVERY_S)

    def look(self, seconds):
        self.watched_s += seconds
        self._still_for_s = 0.0 if self._lively() else self._still_for_s + seconds
        self.still_s += seconds if self._still_for_s else 0.0
        self.longest_still_s = max(self.longest_still_s, self._still_for_s)

    def _lively(self):
        """Something moves, a region is on its way, or a countdown runs."""
        stage, cluster = self._stage, self._stage.cluster
        now = stage.rig.clock.now()
        notices = (n["metadata"].get("annotations", {}).get(INTERRUPT_AT) for n in cluster.store.list(Kind.NODE))
        return (
            stage._moves()
            or any(pd.server.operators.running for pd in cluster.pd.values())
            or any(until and (moment(until) or 0.0) > now for until in notices)
        )


def played(acts=ACTS, seed=1):
    told = []

    def narrate(line):
        told.append(line)
        day.watcher.said_at.append(day.watcher.watched_s)

    day = Day(narrate, seed=seed)
    day.watcher = Watcher(day)
    day.run(acts, around=lambda _: day.watcher)
    return day, told


@pytest.fixture(scope="module")
def whole():
    """The whole day, once."""
    return played()


@pytest.mark.timeout(400)
def test_the_whole_day_holds_every_promise_it_shows(whole):
    """O1, O2, O3: every act is played to its end and no row of the table is broken."""
    day, told = whole
    broken = [(a.title, a.failed, a.why, c.seen) for a in day.played for c in a.checks if not c.kept or a.failed]
    assert broken == []
    assert [a.title for a in day.played if not a.kept] == []
    assert day.kept
    assert day.tally.moves > 0
    assert 0 < day.tally.peak <= day.tally.peak_limit
    assert [line for line in told if line.startswith("     FAIL")] == []


@pytest.mark.timeout(400)
def test_something_moves_from_the_first_second_to_the_last_of_about_a_minute(whole):
    """Idle hours are skipped, acts are slow enough to follow: nobody looks at a page that stands still."""
    watcher = whole[0].watcher
    seen = f"{watcher.watched_s:.0f} s, still {watcher.still_s:.1f} s, {watcher.longest_still_s:.1f} s at a time"
    assert 40.0 < watcher.watched_s < 65.0, seen
    assert watcher.still_s < 0.1 * watcher.watched_s, seen
    assert watcher.longest_still_s < 1.5, seen


@pytest.mark.timeout(400)
def test_the_same_seed_tells_the_same_story(whole):
    """O5: two days of one seed narrate the same, byte for byte, and sum up the same."""
    day, told = whole
    again, told_again = played()
    assert told == told_again
    assert day.tally.line() == again.tally.line()


@pytest.mark.timeout(400)
def test_the_same_day_without_mooring_costs_what_the_day_with_it_does_not(whole):
    """The counter beside the banner is computed: the same seed, the same moments, nobody of ours."""
    day, _ = whole
    assert day.losses.look() == Losses(0, 0, 0)
    told = without.play(1)
    last = told[-1][1]
    assert last.pods >= 10, "the notice and the machine that retired"
    assert last.leaders > 0 and last.quorum == 1, "three stores deleted with leaders on them, two at a time"
    assert [at for at, _ in told] == sorted(at for at, _ in told)


@pytest.mark.timeout(400)
def test_nobody_waits_for_three_seconds_for_the_next_line(whole):
    """Where an act takes its time the line says how the cluster is, and jumps of the clock are said."""
    day, told = whole
    first = next(n for n, line in enumerate(told) if line.startswith("1/8"))
    silences = [
        (later - earlier, line)
        for (earlier, line), later in zip(
            zip(day.watcher.said_at[first:], told[first:], strict=True), day.watcher.said_at[first + 1 :], strict=False
        )
    ]
    assert max(silences)[0] < 3.0, max(silences)
    assert any(re.search(r"09:0\d:\d\d  ✓ Safe: \d+ pods are leaving 12 interrupted nodes", line) for line in told)
    assert any(line.strip() == "09:08 → 09:45  idle time is skipped" for line in told)


@pytest.mark.timeout(400)
def test_kubectl_drain_ends_by_itself_and_says_why_it_waits(whole):
    """D1, D2: a person types `kubectl drain` on a node with a TiKV member and a Deployment of one replica under
    minAvailable 1; each is refused with a sentence until it may go."""
    day, told = whole
    drained = day.played[-1]
    assert drained.kept and {check.promise for check in drained.checks} == {"D1", "D2", "E6", "L1"}
    begin = next(n for n, line in enumerate(told) if line.startswith("8/8"))
    lines = told[begin:]
    assert re.search(r"\$ kubectl drain n\d+ --ignore-daemonsets$", lines[0])
    refused = [line.strip() for line in lines if line.strip().startswith("429 mooring: ")]
    assert any(re.search(r"mail-\S+: the replacement of .* is not Ready yet", line) for line in refused)
    assert any(re.search(r"demo-tikv-1: \d+ of \d+ leaders gone", line) for line in refused)
    assert all("this eviction will succeed by itself" in line for line in refused)


@pytest.mark.timeout(400)
def test_the_same_drain_without_mooring_never_ends_and_cuts_a_pod_off():
    """The counter beside it: the budget refuses for ever, the machine is stopped when it is due."""
    assert without.play(1, acts=(KubectlDrain,))[-1][1].pods == 1


def test_the_lab_plays_all_acts_but_the_drain():
    """What is left out there is the last act, and the day without Mooring beside it leaves out the same."""
    assert (*LAB_ACTS, KubectlDrain) == ACTS


@pytest.mark.timeout(400)
def test_one_act_is_blocked_until_what_why_says_is_typed(whole):
    """E: blocked means that a person must act, and the answer ends with the command: it is typed as it stands."""
    _, told = whole
    (blocked,) = [n for n, line in enumerate(told) if "mooring why pod/shop/report: report is blocked" in line]
    between = told[blocked + 1 : told.index("           $ kubectl -n shop delete pod report")]
    assert between and all("▲ Needs you: M002 blocked: report has no controller" in line for line in between)


@pytest.mark.timeout(120)
def test_without_a_terminal_the_end_does_not_wait_for_a_page():
    """A page may be open: a run that nobody can end with Ctrl-C ends by itself."""
    from mooring_lab.demo.page import DayPage

    page = DayPage(None, None, say=print, keep=False, open_=False)
    page._hub = SimpleNamespace(viewers=1)
    asyncio.run(page.keep())


class Broken:
    at = "09:00"
    title = "a promise that does not hold"
    command = "kubectl get nothing"
    speed = 50.0

    async def play(self, stage):
        return [Check("X1", True, "this held"), Check("X2", False, "this did not")]


class Held(Broken):
    title = "a promise that holds"

    async def play(self, stage):
        return [Check("X1", True, "this held")]


class FallsOver(Broken):
    title = "an act that falls over"

    async def play(self, stage):
        raise AssertionError("was not reached within 600 s:\na long story")


def test_a_broken_promise_and_a_fallen_act_are_rows_with_a_why():
    """The table is printed on failure too: the day goes on, and what failed says what the queue said."""
    day, told = played((Broken, FallsOver, Held))
    assert [a.kept for a in day.played] == [False, False, True]
    assert not day.kept
    assert day.played[1].failed == "was not reached within 600 s:"
    assert all(a.why for a in day.played[:2])
    assert sum(line.startswith("     FAIL") for line in told) == 2


class StoppedHere(Broken):
    at = "10:05"
    title = "somebody presses Ctrl-C ten seconds into this act"

    async def play(self, stage):
        await stage.rig.sleep(10.0)
        raise KeyboardInterrupt


class NeverPlayed(Held):
    at = "10:25"


@pytest.mark.timeout(400)
def test_a_day_that_was_stopped_is_compared_with_the_other_day_as_of_then():
    """LOST compares equal moments: what the other day loses after the Ctrl-C is not in its figures, and the line says so."""
    told = without.play(1)
    day = Day(lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        day.run((Held, StoppedHere, NeverPlayed))
    assert time_of(day.moment()) == "10:05:10"
    by_then = without.lost_by(told, day.moment())
    assert by_then.pods > 0 and by_then != told[-1][1], "something before, and more after"
    assert totals(day, by_then)[1].startswith(f"           the same day without, by then: {by_then}")


def time_of(moment):
    return datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%S")


# ── The command ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def elsewhere(tmp_path):
    """A home, a working directory and a place for temporary files with nothing in them."""
    for name in ("home", "cwd", "tmp"):
        (tmp_path / name).mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "KUBECONFIG": str(tmp_path / "home" / "kubeconfig"),
        "NO_COLOR": "1",
    }
    return tmp_path, env


def start(elsewhere, *arguments):
    directory, env = elsewhere
    return subprocess.Popen(
        [MOORING, "demo", *arguments],
        cwd=directory / "cwd",
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ask(elsewhere, port, *arguments):
    env = {**elsewhere[1], "MOORING_SERVER": f"http://127.0.0.1:{port}"}
    done = subprocess.run([MOORING, *arguments], env=env, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def left_behind(elsewhere, process):
    files = [str(p.relative_to(elsewhere[0])) for p in elsewhere[0].rglob("*") if p.is_file()]
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return files
    return [*files, "a process"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.timeout(300)
def test_ctrl_c_ends_it_calmly_with_the_table_and_leaves_nothing(elsewhere):
    """Leftovers: none. No file, no process, no open port; no traceback; exit 1, since the day was not played."""
    port = free_port()
    process = start(elsewhere, "--port", str(port), "--speed", "5")
    assert process.stderr is not None
    first = [process.stderr.readline() for _ in range(3)]
    assert first[0].startswith("Mooring demo: one day on a sandbox cluster")
    assert f"http://127.0.0.1:{port}" in first[1]
    assert first[2].startswith("Ctrl-C stops.")
    while "/" not in (line := process.stderr.readline())[:3]:
        assert line  # the first act must come
    answer = ask(elsewhere, port, "why", "cluster/demo", "-n", "tidb", "-o", "json")
    assert answer["subject"] == "cluster/tidb/demo"
    assert answer["data_age_s"] is not None
    assert answer["leader"] == "mooring-0"
    assert ask(elsewhere, port, "queue", "-o", "json").keys() >= {"rows", "running", "waiting", "as_of"}
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert "Leftovers: none" in err
    assert "PROMISES" in out
    assert "not played" in out
    assert "\x1b" not in out + err, "NO_COLOR and a pipe: no colours"
    assert process.returncode == 1
    assert left_behind(elsewhere, process) == []
    with socket.socket() as one:
        assert one.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.timeout(300)
def test_a_day_that_is_kept_says_at_its_end_what_it_came_to(elsewhere):
    """--keep: LOST and PROMISES are there while the cluster runs on; Ctrl-C repeats none of them."""
    process = start(elsewhere, "--keep", "--port", "0", "--speed", "2000")
    assert process.stdout is not None
    before = []
    while not before or not before[-1].startswith("PROMISES"):
        before.append(process.stdout.readline())
        assert before[-1], f"it ended by itself: {before}"
    assert process.poll() is None, "the cluster runs on"
    assert [line.split()[0] for line in before if line.strip()] == ["LOST", "the", "PROMISES"], (
        "no table: all were kept"
    )
    assert process.stderr is not None
    while "Ctrl-C ends it" not in (line := process.stderr.readline()):
        assert line, "it ended by itself"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out == ""
    assert "Leftovers: none" in err.splitlines()[-1] and "stopped" not in err.splitlines()[-1]
    assert process.returncode == 0
    assert left_behind(elsewhere, process) == []


def test_a_taken_port_that_was_asked_for_is_the_users_to_change(elsewhere):
    """Exit 2, naming the flag; nothing is begun."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(elsewhere, "--port", str(port))
        out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"--port {port}" in err
    assert out == ""


def test_a_taken_default_port_is_passed_over_and_said(elsewhere):
    """The next free one is taken, and the second line says so."""
    try:
        taken = socket.create_server(("127.0.0.1", 8390))
    except OSError:
        taken = None  # somebody else has it: the same situation
    process = start(elsewhere)
    assert process.stderr is not None
    lines = [process.stderr.readline() for _ in range(2)]
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    if taken is not None:
        taken.close()
    assert "(8390 is taken)" in lines[1]
    assert "--server http://127.0.0.1:" in lines[1]


def test_after_the_day_kubectl_may_break_things_and_why_explains_them(capsys):
    """--keep: the cluster's own API is served on loopback; what a person annotates there is handed over and explained."""
    from mooring.cli.output import note
    from mooring_lab.demo.page import DayPage

    seen = {}

    class Playing(DayPage):
        async def keep(self):
            import aiohttp

            await self.play_on()
            base = f"http://127.0.0.1:{self._listener.getsockname()[1]}/api/v1/why/pod/tidb/demo-tikv-0"
            pod = f"{self._facade.url}/api/v1/namespaces/tidb/pods/demo-tikv-0"
            merge = {"Content-Type": "application/merge-patch+json"}
            wish = {"metadata": {"annotations": {"tidb.pingcap.com/restart": ""}}}
            async with aiohttp.ClientSession() as session:
                async with session.patch(pod, json=wish, headers=merge) as answer:
                    seen["patched"] = answer.status
                for _ in range(200):
                    async with session.get(base) as answer:
                        seen["why"] = await answer.json()
                    if seen["why"]["state"] == "moving":
                        return
                    await self._day.stage.rig.sleep(0.1)

    day = Day(lambda _: None, speed=200.0)
    listener = socket.create_server(("127.0.0.1", 0))
    day.run((Held,), around=lambda d: Playing(d, listener, say=note, keep=True, open_=False))
    assert seen["patched"] == 200
    assert seen["why"]["state"] == "moving"
    said = capsys.readouterr().err
    assert "Break it: kubectl --server http://127.0.0.1:" in said
    assert listener.fileno() == -1, "the port is given back"
