"""The sandbox keeps the contract of the Kubernetes API: in process, and over HTTP through our own client."""

from pathlib import Path

import pytest

from mooring.clients.kube import HttpKubeApi, load
from mooring_lab.cluster.clock import WallDriver, run_virtual
from mooring_lab.cluster.http.facade import Facade
from tests.contract.kube_contract import CASES, Bench, Case
from tests.contract.sandbox_bench import sandbox
from tests.contract.webhook_contract import CASES as WEBHOOK_CASES
from tests.contract.webhook_contract import WebhookCase


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_sandbox(case: Case) -> None:
    """Each promise of the contract holds on the sandbox, on virtual time."""
    api = sandbox()
    run_virtual(lambda: case(Bench(api, "contract", api.server.watches.compact)), api.store.timeline)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
async def test_facade(case: Case, tmp_path: Path) -> None:
    """Each promise of the contract holds over HTTP too: what kubectl sees is what the port sees."""
    server = sandbox(latency_s=0).server
    async with Facade(server, driver=WallDriver(server.timeline, speed=5)) as facade:
        facade.write_kubeconfig(tmp_path / "kubeconfig")
        async with HttpKubeApi(load(str(tmp_path / "kubeconfig"))) as api:
            await case(Bench(api, "contract", server.watches.compact))


@pytest.mark.parametrize("case", WEBHOOK_CASES, ids=lambda c: c.__name__)
async def test_facade_webhooks(case: WebhookCase, tmp_path: Path) -> None:
    """The sandbox asks webhooks over TLS the way the real API server does."""
    server = sandbox(latency_s=0).server
    async with Facade(server, driver=WallDriver(server.timeline)) as facade:
        facade.write_kubeconfig(tmp_path / "kubeconfig")
        async with HttpKubeApi(load(str(tmp_path / "kubeconfig"))) as api:
            await case(Bench(api, "contract"), tmp_path / "pki")
