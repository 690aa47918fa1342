"""The container file's steps, played on this machine: what it copies is enough to build what it runs.

There is no container engine to count on, and no registry for its base image; but what its first stage does is to run
uv on a few files, and its second one takes over the directory that came of it.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]
ROOT = Path(__file__).parents[2]


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage: ("COPY", "src ./src")."""
    found: list[list[tuple[str, str]]] = []
    for line in (ROOT / "deploy/Containerfile").read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        elif word and word != "#":
            found[-1].append((word, rest))
    return found


def copy(names: list[str], src: Path) -> None:
    """As an engine would: only what .dockerignore lets through."""
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(names) <= let_through
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, src / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, src / name)


def play(uv: str, tmp_path: Path) -> Path:
    """The first stage, with /src and /app in a directory of the test's. Returns the latter."""
    src, app = tmp_path / "src", tmp_path / "app"
    src.mkdir()
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    environment |= {"PATH": f"{Path(uv).parent}:{os.environ['PATH']}", "UV_PYTHON": sys.executable}
    for word, rest in stages()[0]:
        if word == "ENV":
            given = dict(pair.split("=", 1) for pair in shlex.split(rest))
            assert given.pop("UV_PROJECT_ENVIRONMENT") == "/app"
            given.pop("UV_NO_CACHE")  # for a small layer; here it would only cost time
            environment |= given | {"UV_PROJECT_ENVIRONMENT": str(app)}
        elif word == "COPY":
            copy(shlex.split(rest)[:-1], src)
        elif word == "RUN" and rest.startswith("uv "):
            ran = subprocess.run(
                ["sh", "-c", rest], cwd=src, env=environment, capture_output=True, text=True, timeout=200
            )
            assert ran.returncode == 0, ran.stderr[-2000:]
        else:
            assert (word, *rest.split()[:2]) in {("RUN", "pip", "install"), ("WORKDIR", "/src")}
    shutil.rmtree(src)
    return app


def test_the_image_holds_what_the_lock_pins(uv, tmp_path):
    """Exactly the locked versions, compiled, and nothing that leads back to the sources: `mooring manifests` runs without them."""
    app = play(uv, tmp_path)
    ran = subprocess.run([app / "bin/mooring", "manifests"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "kind: Deployment" in ran.stdout, ran.stderr
    listed = subprocess.run(
        [uv, "pip", "list", "--format=json", "--python", app / "bin/python"],
        capture_output=True,
        check=True,
        timeout=60,
    )
    installed = {package["name"]: package["version"] for package in json.loads(listed.stdout)}
    locked = {p["name"]: p["version"] for p in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    assert installed.items() <= locked.items()
    assert {"mooring", "aiohttp", "uvloop"} <= set(installed)
    assert not {"pytest", "pip"} & set(installed)
    assert list(app.glob("lib/*/site-packages/mooring/__pycache__/__init__.*.pyc"))
