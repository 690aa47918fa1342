"""`pip install mooring` and `uvx mooring demo` work: everything the commands need is in the wheel."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]
ROOT = Path(__file__).parents[3]


def run(*command: str, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    ran = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(uv, tmp_path_factory) -> str:
    directory = tmp_path_factory.mktemp("wheel")
    run(uv, "build", "--wheel", "-o", str(directory), str(ROOT), cwd=directory)
    (built,) = directory.glob("*.whl")
    return str(built)


@pytest.fixture(scope="module")
def lab_wheel(uv, tmp_path_factory) -> str:
    directory = tmp_path_factory.mktemp("lab-wheel")
    run(uv, "build", "--wheel", "-o", str(directory), str(ROOT / "src/mooring_lab"), cwd=directory)
    (built,) = directory.glob("*.whl")
    return str(built)


def test_pip_installs_the_wheel(uv, wheel, tmp_path):
    """By pip into an empty environment, and run from elsewhere: version, manifests, completion, the page's files."""
    run(uv, "venv", "--seed", "--python", sys.executable, "env", cwd=tmp_path)
    run("env/bin/pip", "install", "-q", wheel, cwd=tmp_path)
    assert run("env/bin/mooring", "--version", cwd=tmp_path).strip()
    assert "kind: Deployment" in run("env/bin/kubectl-mooring", "manifests", cwd=tmp_path)
    assert "doctor" in run("env/bin/kubectl_complete-mooring", "do", cwd=tmp_path)
    listing = "from importlib import resources; print(*(f.name for f in resources.files('mooring.process.http').joinpath('static').iterdir()))"
    assert "`mooring manifests --features …`" in run("env/bin/mooring", "doctor", "--code", "MO202", cwd=tmp_path)
    run("env/bin/mooring", "manifests", "--files", "files", cwd=tmp_path)
    for name in ("chart/mooring/values.yaml", "monitoring/alerts.yaml", "monitoring/dashboard.json"):
        assert (tmp_path / "files" / name).read_bytes() == (ROOT / "deploy" / name).read_bytes()
    shipped = set(run("env/bin/python", "-c", listing, cwd=tmp_path).split())
    assert shipped == {f.name for f in (ROOT / "src/mooring/process/http/static").iterdir()}


def test_without_the_second_distribution_its_commands_say_what_to_install(uv, wheel, tmp_path):
    run(uv, "venv", "--seed", "--python", sys.executable, "env", cwd=tmp_path)
    run("env/bin/pip", "install", "-q", wheel, cwd=tmp_path)
    for words in (("demo", "--short"), ("sim",), ("rehearse", "spot-gone", "--seed=1")):
        ran = subprocess.run(["env/bin/mooring", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "pip install 'mooring[lab]'" in ran.stderr


def test_uvx_plays_the_demo(uv, wheel, lab_wheel, tmp_path):
    """`uvx mooring demo` (`uv tool run` in full): nothing is installed, and every promise of the short day is kept."""
    once = ("tool", "run", "--isolated", "--python", sys.executable, "--from", wheel, "--with", lab_wheel)
    told = run(uv, *once, "mooring", "demo", "--short", "-o", "json", cwd=tmp_path)
    assert json.loads(told)["kept"] is True
