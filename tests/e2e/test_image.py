"""The image without an engine: its container file's steps played on this machine, and what came of them run as a pod is.

There is no container engine to count on, and no registry for the base image. But the first stage runs uv on a few files,
and the second takes over the directory that came of it; and what a pod's user may not write to can be had without one.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mooring.install.manifests import USER
from mooring_lab.control.cluster import Lab
from mooring_lab.control.loopback import free_ports
from tests.e2e.waiting import until

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
OUTSIDE = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
NAMESPACE = "mooring-image"


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage: ("COPY", "src ./src")."""
    found: list[list[tuple[str, str]]] = []
    for line in (ROOT / "deploy/Containerfile").read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        elif found and word and word != "#":
            found[-1].append((word, rest))
    return found


def variables(rest: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in shlex.split(rest))


def copy(names: list[str], into: str, src: Path) -> None:
    """As an engine would: only what .dockerignore lets through."""
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(names) <= let_through
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, src / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (src / into).mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, src / into / Path(name).name)


@pytest.fixture(scope="module")
def app(uv: str) -> Iterator[Path]:
    """What the first stage makes of its files, in a directory of ours that everybody may read, in place of /app."""
    with tempfile.TemporaryDirectory(prefix="mooring-image-") as directory:
        Path(directory).chmod(0o755)
        src, app = Path(directory) / "src", Path(directory) / "app"
        src.mkdir()
        environment = OUTSIDE | {"PATH": f"{Path(uv).parent}:{os.environ['PATH']}", "UV_PYTHON": sys.executable}
        for word, rest in stages()[0]:
            if word == "ENV":
                given = variables(rest)
                assert given.pop("UV_PROJECT_ENVIRONMENT") == "/app"
                given.pop("UV_NO_CACHE")  # for a small layer; here it would only cost time
                environment |= given | {"UV_PROJECT_ENVIRONMENT": str(app)}
            elif word == "COPY":
                *names, into = shlex.split(rest)
                copy(names, "" if into == "/tmp/" else into, src)
            elif word == "RUN" and rest.startswith("uv "):
                command = [str(app) if word == "/app" else word for word in shlex.split(rest)]
                ran = subprocess.run(command, cwd=src, env=environment, capture_output=True, text=True, timeout=200)
                assert ran.returncode == 0, ran.stderr[-2000:]
            else:
                assert (word, *rest.split()[:2]) in {("RUN", "pip", "install"), ("WORKDIR", "/src")}
        shutil.rmtree(src)
        yield app


def test_the_image_holds_what_the_lock_pins(uv: str, app: Path):
    """Exactly the locked versions, compiled for a root that is read-only, and nothing that only a developer needs."""
    command = [uv, "pip", "list", "--format=json", "--python", str(app / "bin/python")]
    listed = subprocess.run(command, env=OUTSIDE, capture_output=True, check=True, timeout=180)
    installed = {package["name"]: package["version"] for package in json.loads(listed.stdout)}
    locked = {p["name"]: p["version"] for p in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    assert installed.items() <= locked.items()
    assert {"mooring", "aiohttp", "uvloop"} <= set(installed)
    assert not {"pytest", "pip", "mooring-lab"} & set(installed)
    assert not list(app.glob("lib/*/site-packages/mooring_lab*"))
    assert list(app.glob("lib/*/site-packages/mooring/__pycache__/__init__.*.pyc"))


def as_nobody(app: Path) -> list[str]:
    """A way to be the image's user here. Only root has one; whoever is not root is nobody enough without a home.

    Python may lie where only root can look (a version manager's): reading is left allowed where that can be had.
    """
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
    may_read = [f"--{which}-caps=-all,+dac_read_search" for which in ("inh", "ambient")]
    ways = ([*user, *may_read], user) if os.geteuid() == 0 and shutil.which("setpriv") else ()
    trials = (way for way in ways if subprocess.run([*way, app / "bin/python", "-c", ""], check=False).returncode == 0)
    return next(trials, [])


class Container:
    """`mooring run` as the second stage and the manifests have it: its words, its environment, nobody's user, no home."""

    def __init__(self, app: Path, tmp: Path, kubeconfig: Path) -> None:
        final = stages()[1]
        (entry,) = [json.loads(rest) for word, rest in final if word == "ENTRYPOINT"]
        (words,) = [json.loads(rest) for word, rest in final if word == "CMD"]
        (given,) = [variables(rest) for word, rest in final if word == "ENV"]
        environment = given | {"PATH": f"{app / 'bin'}:/usr/bin:/bin", "TMPDIR": str(tmp)}
        http, extender, webhook = (f"127.0.0.1:{port}" for port in free_ports(3))
        more = [f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}", "--features=mix=true"]
        more += [f"--listen-http={http}", f"--listen-extender={extender}", f"--listen-webhook={webhook}"]
        program = [
            *as_nobody(app),
            str(app / "bin" / entry[0]),
            *entry[1:],
            *words,
            *more,
            f"--webhook-url=https://{webhook}",
        ]
        self._log = app.parent / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(program, cwd="/", env=environment, stdout=log, stderr=log)
        self.url = f"http://{http}"

    def said(self) -> str:
        return self._log.read_text()

    def ready(self) -> bool:
        assert self._process.poll() is None, self.said()
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{self.url}/readyz", timeout=30).close()
            return True
        return False

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(120)
        finally:
            self._process.kill()


def test_the_image_runs_as_a_user_who_may_write_nowhere(lab: Lab, app: Path):
    """Where only /tmp can be written, by a user without a home: it leads, makes the webhook's certificates, ends when
    told to, and leaves nothing in /tmp."""
    tmp, kubeconfig = app.parent / "tmp", app.parent / "kubeconfig"
    tmp.mkdir()
    tmp.chmod(0o1777)
    manifests = [app / "bin/mooring", "manifests", "--namespace", NAMESPACE, "--features", "mix=true"]
    text = subprocess.run(manifests, cwd="/", capture_output=True, text=True, check=True, timeout=180).stdout
    lab.kubectl("apply", "-f", "-", input=text)
    try:
        lab.kubectl("-n", NAMESPACE, "scale", "deploy/mooring", "--replicas", "0")
        config = yaml.safe_load(lab.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": lab.kubectl("-n", NAMESPACE, "create", "token", "mooring").strip()}
        kubeconfig.write_text(yaml.safe_dump(config))
        kubeconfig.chmod(0o644)
        container = Container(app, tmp, kubeconfig)
        try:
            hooks = ("get", "mutatingwebhookconfigurations", "-o", "name")
            until(lambda: container.ready() and "mooring-mix" in lab.kubectl(*hooks), tell=container.said)
        finally:
            code = container.stop()
        assert code == 0, container.said()
        assert list(tmp.iterdir()) == []
    finally:
        common = ["--kubeconfig", str(lab.kubeconfig), "--namespace", NAMESPACE]
        subprocess.run([app / "bin/mooring", "cleanup", "--yes", *common], cwd="/", check=True, timeout=180)
        lab.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", input=text)
