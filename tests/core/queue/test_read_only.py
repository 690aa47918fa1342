"""What mypy holds: a capability reads the queue and cannot change it (rule 2 of the architecture)."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

CAPABILITY = """
from mooring.core.model.decision import Evaluation
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead


class Small:
    def evaluate(self, key: str, world: WorldRead, queue: QueueRead, notes: object, now: float) -> Evaluation:
        if queue.holder(key) is None:
            {line}
        return Evaluation()
"""


def mypy(folder: Path, line: str) -> str:
    source = folder / "small.py"
    source.write_text(CAPABILITY.format(line=line))
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(source)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_a_capability_that_reads_is_accepted(tmp_path):
    assert "Success" in mypy(tmp_path, "return Evaluation(again_at=now + queue.used(key))")


def test_a_capability_that_changes_the_queue_is_refused(tmp_path):
    found = mypy(tmp_path, 'queue.cancel("1")')
    assert '"QueueRead" has no attribute "cancel"' in found
    assert "Found 1 error" in found
