"""The real API server keeps the same contract as the sandbox: one list of promises, two servers."""

import itertools
from pathlib import Path

import pytest

from mooring.clients.kube import HttpKubeApi, load
from mooring.core.model.kinds import Kind
from mooring_lab.control.cluster import Lab
from tests.contract.kube_contract import CASES, Bench, Case
from tests.contract.webhook_contract import CASES as WEBHOOK_CASES
from tests.contract.webhook_contract import WebhookCase
from tests.e2e.spine_environment import install_crd

pytestmark = pytest.mark.e2e
_IDS = itertools.count(1)


async def run(case: Case, kubeconfig: str) -> None:
    async with HttpKubeApi(load(kubeconfig), write_timeout_s=10) as api:
        await install_crd(api)
        namespace = f"contract-{next(_IDS)}"
        await api.create(Kind.NAMESPACE, {"metadata": {"name": namespace}})
        try:
            await case(Bench(api, namespace))
        finally:
            await api.delete(Kind.NAMESPACE, "", namespace)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
async def test_real_api_server(case: Case, lab: Lab) -> None:
    """Each promise of the contract holds on the real API server, through our own client."""
    await run(case, str(lab.kubeconfig))


@pytest.mark.parametrize("case", WEBHOOK_CASES, ids=lambda c: c.__name__)
async def test_real_api_server_webhooks(case: WebhookCase, lab: Lab, tmp_path: Path) -> None:
    """The real API server asks webhooks the way the contract says."""

    async def with_hooks(bench: Bench) -> None:
        await case(bench, tmp_path)

    await run(with_hooks, str(lab.kubeconfig))
