"""The real control plane for a test run: started once in a temporary directory, gone afterwards, however the run ends."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooring_lab.control.binaries import ABSENT, OPTIONAL, find, release
from mooring_lab.control.cluster import Lab
from mooring_lab.control.errors import LabError
from tests.e2e import waiting

HERE = Path(__file__).parent
LOGS = HERE.parent.parent / ".e2e-logs"
STARTED = pytest.StashKey[Lab]()
#: The cluster's own.
KEPT = {"default", "kube-node-lease", "kube-public", "kube-system"}
ADMISSION = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies")
#: They begin first, so that no lab is left with one of them when the others have nothing to do any more.
LONGEST = (
    # Its bursts need the processors: so before any lab is busy with what another file left.
    "test_mix_admission",
    "test_spine",
    "test_examples",
    "test_mix_rebalance",
    "test_mix_many",
    "test_install",
    "test_rehearse_true",
    "test_fleet",
    "test_home",
    "test_tidb_beside_others",
    "test_handoff_phases",
    "test_neighbours",
    "test_balance",
    "test_rights",
    "test_mix_disruptions",
    "test_handoff",
    "test_browser",
    "test_tenants",
    "test_security_process",
    "test_lab",
)
# The servers, and kubectl with each call, look for garbage less often: there is memory enough, and too little processor.
os.environ.setdefault("GOGC", "400")


@pytest.fixture(autouse=True, scope="session")
def recordings_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A running Mooring records below the user's state directory: not that of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this directory needs the real control plane; long files come first."""
    first = {f"{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: first.get(item.path.name, len(LONGEST)))
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            # Waits follow what moves (`waiting`); this only ends what hangs.
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A running control plane without nodes; see `mooring_lab.control.cluster.Lab` for what one can do with it."""
    directory = Path(tempfile.mkdtemp(prefix="mooring-e2e-"))
    try:
        running = Lab.up(directory / "lab", find(release()), foreground=True)
    except LabError as error:
        _keep_logs(directory / "lab")
        shutil.rmtree(directory)
        # Not a skip: whoever asks for these tests wants to know that they did not run.
        pytest.exit(f"the real control plane cannot be started: {error}", returncode=1)
    request.config.stash[STARTED] = running
    waiting.show(running)
    try:
        yield running
    finally:
        waiting.show()
        if request.session.testsfailed or request.session.shouldstop:
            _keep_logs(running.dir)
        running.down()
        shutil.rmtree(directory)


@pytest.fixture(scope="module", autouse=True)
def _swept(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each file finds an empty cluster: no workload of another file to look after, no webhook of a process long dead."""
    yield
    running = request.config.stash.get(STARTED, None)
    used = any(
        "lab" in getattr(item, "fixturenames", ()) for item in request.session.items if item.path == request.path
    )
    if running is None or not used:
        return
    with running.api() as api:
        for kind in ADMISSION:
            api.delete_all(f"apis/admissionregistration.k8s.io/v1/{kind}")
        found = {one["metadata"]["name"] for one in api.ask("GET", "api/v1/namespaces")["items"]}
        api.empty(*found & KEPT)
        # Nobody waits until they have ended: there is nothing left in them that runs, and no other has their names.
        running.clear(*sorted(found - KEPT))
        api.delete_all("api/v1/nodes")


@pytest.fixture(scope="session")
def pd_server(lab: Lab) -> Path | None:
    """The real pd-server's program, or None: then the test runs against the sandbox's PD."""
    return lab.pd_server


@pytest.fixture(scope="session")
def sabakan(lab: Lab) -> Path | None:
    """The real sabakan's program, or None: then the test runs against the sandbox's sabakan."""
    return lab.sabakan


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say in one plain line what was stood in for."""
    running = config.stash.get(STARTED, None)
    for name in OPTIONAL if running is not None else ():
        if running.binaries.optional(name) is None:
            terminalreporter.write_line(f"{ABSENT[name]}: the sandbox's server answered instead")


def _keep_logs(directory: Path) -> None:
    if (directory / "logs").is_dir():
        kept = LOGS / time.strftime("%Y%m%d-%H%M%S")
        shutil.copytree(directory / "logs", kept)
        print(f"\nthe servers' logs are in {kept}")
