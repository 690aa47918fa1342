"""`pip install mooring` works: everything the commands need is in the wheel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]
ROOT = Path(__file__).parents[2]
UV = shutil.which("uv") or (str(ROOT / ".tools/bin/uv") if (ROOT / ".tools/bin/uv").exists() else None)


def run(*command: str, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    ran = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


@pytest.mark.skipif(UV is None, reason="uv is not at hand: the wheel is built with it")
def test_the_wheel_runs_away_from_the_sources(tmp_path):
    """Built, installed into an empty environment, and run from elsewhere: version, manifests, page files, a short demo."""
    run(UV, "build", "--wheel", "-o", str(tmp_path), str(ROOT), cwd=tmp_path)
    run(UV, "venv", "--python", sys.executable, "env", cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    run(UV, "pip", "install", "--python", "env/bin/python", str(wheel), cwd=tmp_path)
    assert run("env/bin/mooring", "--version", cwd=tmp_path).strip()
    assert "kind: Deployment" in run("env/bin/kubectl-mooring", "manifests", cwd=tmp_path)
    assert "doctor" in run("env/bin/kubectl_complete-mooring", "do", cwd=tmp_path)
    listing = "from importlib import resources; print(*(f.name for f in resources.files('mooring.serve').joinpath('static').iterdir()))"
    shipped = set(run("env/bin/python", "-c", listing, cwd=tmp_path).split())
    assert shipped == {f.name for f in (ROOT / "src/mooring/serve/static").iterdir()}
    assert '"held":' in run("env/bin/mooring", "demo", "--short", "-o", "json", cwd=tmp_path)
