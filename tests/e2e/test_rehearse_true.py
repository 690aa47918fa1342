"""What a rehearsal says is what then happens: nine events on a real control plane, workload by workload.

Both columns are printed. The same pods go, by the same hand, as many come, and a workload falls as low. How long it is
short may differ by `TOLERANCE_S` or a third, whichever is more: a kubelet renews its lease every ten seconds,
Kubernetes writes whole seconds, and a loaded machine is slow; less than `BLINK_S` below is not below. Where new pods go
is printed and not compared: here nine events happen at once, in a rehearsal one alone, so other nodes are free.
`test_scheduler_true` compares what kube-scheduler chooses in the same cluster.

What a rehearsal cannot know is the machine that the lab runs on: where its processes stall for longer than a lease
lasts (ten seconds), nodes fall silent to which nobody did anything, and other pods go than in a cluster whose machines
run. Such a play shows nothing, and is played once more, on a fresh lab; the nodes are printed. Where none did, a
difference is a rehearsal that was wrong, the first time too.
"""

import asyncio
import sys
import time
from pathlib import Path

import pytest

from mooring.capabilities.handoff.requests import RESTART
from mooring_lab.cluster.controllers import podstate
from mooring_lab.control.binaries import find, release
from mooring_lab.control.loopback import free_ports
from mooring_lab.demo.stage import DEMO, TIDB
from tests.e2e.rehearse_ground import CONFIG, NAMESPACE, Ground, Row, rehearsed

pytestmark = pytest.mark.e2e

TOLERANCE_S, TOLERANCE, BLINK_S = 15.0, 1 / 3, 2.0
#: How long a zone is cut off: Kubernetes gives its nodes up meanwhile, and their pods.
AWAY_S = 80.0
#: Those that are complete again in the end.
WHOLE = {"drained": 4, "lost": 5, "zoned": 4, "cut": 3, "kept": 3, "updated": 4, "ordered": 3, "noticed": 6}


def differences(mine: Row, real: Row) -> list[str]:
    found = []
    if mine.went != real.went:
        found.append(
            f"went {sorted(mine.went - real.went)} in the rehearsal alone, {sorted(real.went - mine.went)} really"
        )
    if len(mine.came) != len(real.came):
        found.append(f"{len(mine.came)} came, {len(real.came)} really")
    if _depth(mine) != _depth(real):
        found.append("fell as low or ended otherwise")
    allowed = max(TOLERANCE_S, TOLERANCE * real.short_s)
    if not mine.to_the_end and abs(mine.short_s - real.short_s) > allowed:
        found.append(f"short for {mine.short_s:.0f} s, {real.short_s:.0f} s really, {allowed:.0f} s may lie between")
    return found


def _depth(row: Row) -> tuple[int | None, bool]:
    return (None if row.short_s < BLINK_S else row.lowest, row.to_the_end)


def test_what_is_rehearsed_is_what_happens(tmp_path: Path) -> None:
    """O4: node killed, zone lost, zone cut off, notices given, machine retired, TiKV restarted, rolling updates, a
    drain."""
    told, stalled = _played(tmp_path)
    if told and stalled:
        print(
            f"\nthe lab stalled, {', '.join(sorted(stalled))} fell silent; the first play differed:", *told, sep="\n  "
        )
        told, _ = _played(tmp_path)
    assert not told, "\n".join(told)


def _played(tmp_path: Path) -> tuple[list[str], set[str]]:
    """What differs, and the nodes that fell silent by themselves."""
    stage = Ground(find(release()), http=f"127.0.0.1:{free_ports(1)[0]}", progress=lambda _: None)
    told: list[str] = []

    async def whole() -> None:
        try:
            told.extend(await _compared(stage, tmp_path))
        finally:
            await stage.close()

    stage.run(whole)
    return told, stage.machines.stalled


async def _compared(stage: Ground, tmp_path: Path) -> list[str]:
    began = time.monotonic()
    await stage.prepare()
    _say(began, "the lab stands")
    snapshot, config = tmp_path / "lab.json", tmp_path / "mooring.yaml"
    config.write_text(CONFIG)
    await stage.snapshot(snapshot)
    serial, retired = stage.busy_machine()
    events = [
        "drain d1",
        "node-lost l1",
        "zone-lost east",
        f"zone-cut-off north --away {AWAY_S:g}s",
        f"rolling-update deployment/{NAMESPACE}/updated",
        f"rolling-update statefulset/{NAMESPACE}/ordered",
        "spot-gone p",
        f"restart pod/{TIDB}/{DEMO}-tikv-1",
        f"retire {serial}",
    ]
    rehearsals = await asyncio.gather(*(rehearsed(event, snapshot, config) for event in events))
    assert all(rehearsals), (
        f"a rehearsal in which nobody moves shows nothing: {dict(zip(events, rehearsals, strict=True))}"
    )
    _say(began, "rehearsed")
    stage.watch_all()
    before = {
        name: {p["metadata"]["uid"] for p in stage.cluster.pods(NAMESPACE, name)} for name in ("updated", "ordered")
    }
    for node in ("l1", "e1", "e2", "f1"):
        stage.machines.silence(node)
    asyncio.get_running_loop().call_later(AWAY_S, stage.machines.resume, "f1")
    stage.give_notices()
    stage.retire(serial)
    await stage.kubectl(f"kubectl -n {TIDB} annotate pod {DEMO}-tikv-1 {RESTART}=")
    await stage.kubectl(f"kubectl -n {NAMESPACE} set image deployment/updated app=registry.example/app:2")
    await stage.kubectl(f"kubectl -n {NAMESPACE} set image statefulset/ordered app=registry.example/app:2")
    await stage.kubectl("kubectl drain d1 --ignore-daemonsets --timeout=300s")
    _say(began, "struck")

    def over() -> bool:
        pods = stage.cluster.pods
        renewed = all(not before[name] & {p["metadata"]["uid"] for p in pods(NAMESPACE, name)} for name in before)
        whole = all(stage.ready(NAMESPACE, name) == n for name, n in WHOLE.items())
        gone = not stage.cluster.cloud.notices and stage.observer.now_s > AWAY_S + 10.0
        empty = not [p for p in stage.pods_on(retired) if not podstate.terminal(p)]
        return renewed and whole and gone and empty and stage.ready(TIDB, f"{DEMO}-tikv") == 3

    await stage.over(over)
    _say(began, "over")
    happened = stage.happened()
    return _table(events, rehearsals, happened)


def _table(events: list[str], rehearsals: list[dict[str, Row]], happened: dict[str, Row]) -> list[str]:
    """Print both columns; what differs by more than it may."""
    nothing = Row(frozenset(), (), None, 0.0, False)
    wrong: list[str] = []
    told: set[str] = set()
    for event, mine in zip(events, rehearsals, strict=True):
        print(f"\n{event}")
        for workload, row in sorted(mine.items()):
            real = happened.get(workload, nothing)
            found = differences(row, real)
            print(f"  {workload}\n    rehearsed  {row.words}\n    really     {real.words}")
            wrong += [f"{event}: {workload}: {words}" for words in found]
            told.add(workload)
    for workload in sorted(set(happened) - told):
        wrong.append(f"{workload}: {happened[workload].words}, and no rehearsal said so")
    return wrong


def _say(began: float, words: str) -> None:
    print(f"{time.monotonic() - began:5.0f} s  {words}", file=sys.stderr)
