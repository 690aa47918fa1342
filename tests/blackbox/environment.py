"""Scenarios of the sandbox, recorded. `python -m tests.blackbox.environment` makes the committed incidents anew."""

import shutil
import tempfile
from pathlib import Path

import msgspec

from mooring.core.engine.recording.replay import Difference, Replay
from mooring.process.blackbox.file import FrameWriter, RecordingFile, header_line, recordings
from mooring.process.blackbox.playback import Playback
from mooring.process.settings.config import BlackBoxSettings
from mooring_lab.stage.rig import Rig
from tests.sim.scenarios.balance import ScaleOutScenario
from tests.sim.scenarios.fleet import RetireScenario
from tests.sim.scenarios.home import HomeScenario
from tests.sim.scenarios.mix import ModeChangeScenario, NoticeScenario, QuickScenario
from tests.sim.scenarios.restart import RestartScenario

INCIDENTS = Path(__file__).parent / "incidents"
SCENARIOS = {
    "restart": lambda: RestartScenario((0,)),
    "two-restarts": lambda: RestartScenario((0, 1)),
    "mode-change": ModeChangeScenario,
    "quicker-way": QuickScenario,
    "notice": NoticeScenario,
    "retire": RetireScenario,
    "rolling-update": HomeScenario,
    "scale-out": lambda: ScaleOutScenario(stores=3, regions=60),
}


def record(name: str, directory: Path, watch=lambda replica: None) -> list[Path]:
    """The recordings of every replica of a scenario, oldest first. `watch` looks at the last of them meanwhile."""
    scenario = SCENARIOS[name]()
    rig = scenario.rig()
    rig.config = msgspec.structs.replace(rig.config, blackbox=BlackBoxSettings(dir=str(directory)))

    async def play(rig: Rig) -> None:
        await scenario.build(rig)
        replica = rig.start("second")
        await rig.until(rig.leads)
        await scenario.act(rig)
        await rig.until(lambda: watch(replica) or scenario.done(rig), limit_s=3600.0)
        await rig.until(lambda: watch(replica) or not rig.unsettled(), limit_s=600.0)
        await rig.sleep(5.0)
        replica.blackbox.close()

    rig.play(play)
    return sorted(recordings(directory), key=lambda path: RecordingFile(path).header.started_at)


def records_of(path: Path) -> list[bytes]:
    """Of its last part."""
    return list(RecordingFile(path).parts[-1].records())


def reframed(path: Path, to: Path, records: list[bytes]) -> Path:
    """The same recording with other records, a frame for each."""
    frames = FrameWriter()
    to.write_bytes(header_line(RecordingFile(path).header) + b"".join(frames.frame([one]) for one in records))
    return to


def replayed(path: Path, at: float | None = None) -> tuple[Difference | None, Replay]:
    """From its start, or from the last checkpoint before `at`."""
    file = RecordingFile(path)
    played = Playback(file) if at is None else Playback(file, at, first=False)
    replay = Replay(played.engine)
    for entry in played.records:
        if (difference := replay.put(entry)) is not None:
            return difference, replay
    return None, replay


def main() -> None:
    for name in SCENARIOS:
        with tempfile.TemporaryDirectory() as made:
            last = record(name, Path(made))[-1]
            shutil.copyfile(last, INCIDENTS / f"{name}.blackbox")
            print(name, (INCIDENTS / f"{name}.blackbox").stat().st_size)


if __name__ == "__main__":
    main()
