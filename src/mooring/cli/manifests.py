"""`mooring manifests`: everything that installs Mooring, as YAML for kubectl."""

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

import mooring
from mooring.cli.connect import Context, Kubeconfig, OwnNamespace, connect
from mooring.cli.output import Format, Output, Whole, note, print_data
from mooring.core.model.exits import UserError

app = App(name="manifests")


@app.default
def manifests(
    *,
    features: Annotated[
        str, Parameter(help="NAME=true,…: home, handoff, mix, fleet, balance. Rights follow them.")
    ] = "",
    image: Annotated[
        str, Parameter(help="The image built from deploy/Containerfile.")
    ] = f"mooring:{mooring.__version__}",
    namespace: OwnNamespace = "mooring-system",
    replicas: Annotated[Whole, Parameter(help="How many; one leads, the others stand by.")] = 2,
    sabakan_url: Annotated[str, Parameter(help="The machine registry, for fleet.")] = "",
    node_cidrs: Annotated[
        str, Parameter(help="CIDR[,CIDR…] of the nodes: API servers and schedulers on the host come from there.")
    ] = "",
    webhook_open_to_all: Annotated[
        bool, Parameter(negative="", help="Let every pod reach the webhook: the cluster is not asked for API servers.")
    ] = False,
    prometheus_namespaces: Annotated[
        str, Parameter(help="Namespace[,namespace…] where Prometheus runs: it reaches the metrics from there alone.")
    ] = "monitoring",
    agent: Annotated[
        bool, Parameter(negative="", help="The DaemonSet that reads the cloud's interruption notices, too.")
    ] = False,
    http_tls_secret: Annotated[str, Parameter(help="A Secret with tls.crt and tls.key: else self-signed.")] = "",
    pd_client_secrets: Annotated[
        str, Parameter(help="NAMESPACE/SECRET[,…] for PDs over TLS, as tidb/demo-cluster-client-secret: may be read.")
    ] = "",
    scheduler_image: Annotated[
        str, Parameter(help="With home: also a second kube-scheduler that asks it, of this image (name its version).")
    ] = "",
    rights: Annotated[bool, Parameter(help="Only account, roles and bindings: to give back what is missing.")] = False,
    network_policy: Annotated[bool, Parameter(negative="", help="Only the network policy: API servers moved.")] = False,
    files: Annotated[
        str, Parameter(help="Only write the Helm chart, the alerts and the dashboard into this new directory.")
    ] = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    output: Output = Format.TABLE,
) -> None:
    """Print Namespace, account, roles, Deployment, Services, budget, priority, webhooks, network and admission policy.

    Non-root, read-only root, no capabilities. Nothing is applied: look at it, then pipe it into kubectl. Name every
    feature that is to be on: what is not named is off, and without its rights. With mix, the cluster of the kubeconfig
    is asked where its API servers are: the network policy lets only these reach the webhook.

    Example: mooring manifests --features handoff=true --image registry.example/mooring:0.3.0 | kubectl apply -f -

    Example: mooring manifests --features home=true --scheduler-image registry.k8s.io/kube-scheduler:v1.36.3

    Example: mooring manifests --files mooring-files && helm install mooring mooring-files/chart/mooring
    """
    if files:
        _write(files)
        return
    from msgspec.structs import replace

    from mooring.capabilities.registry import serving
    from mooring.install import manifests as made
    from mooring.install.scheduler import version_of
    from mooring.process.settings.features import OBSERVE

    on = made.checked(features, replicas, namespace)
    if scheduler_image:
        version_of(scheduler_image)
        if not serving("extender", on):
            raise UserError("--scheduler-image: only home answers schedulers; add --features home=true")
    install = made.Install(
        image=image,
        namespace=namespace,
        features=frozenset(on),
        observing=frozenset(name for name, switch in on.items() if switch == OBSERVE),
        replicas=replicas,
        sabakan_url=sabakan_url,
        node_cidrs=_listed(node_cidrs),
        webhook_open_to_all=webhook_open_to_all,
        prometheus_namespaces=_listed(prometheus_namespaces),
        http_tls_secret=http_tls_secret,
        scheduler_image=scheduler_image,
        pd_client_secrets=made.secrets_of(pd_client_secrets),
        agent=agent,
    )
    kinds = (made.RIGHTS if rights else frozenset()) | (made.NETWORK if network_policy else frozenset())
    remark = ""
    if made.asks_for_callers(install) and (network_policy or not rights):
        found, why = asyncio.run(_api_servers(kubeconfig, context))
        install = replace(install, api_servers=found)
        note(remark := made.remark(install, why))
    _print(made.manifests(install, kinds), remark, output)


def _listed(given: str) -> tuple[str, ...]:
    return tuple(filter(None, (one.strip() for one in given.split(","))))


def _write(directory: str) -> None:
    """As a wheel has them, or a checkout."""
    here = Path(__file__).parents[1] / "install" / "files"
    source = here if here.exists() else Path(__file__).parents[3] / "deploy"
    try:
        for name in ("chart", "monitoring"):
            shutil.copytree(source / name, Path(directory) / name)
    except OSError as error:
        raise UserError(
            f"--files {directory}: {error.strerror or error}; give a directory that is not there yet"
        ) from None
    note(f"mooring: chart, alerts and dashboard are in {directory}")


def _print(objects: list[dict[str, Any]], remark: str, output: Format) -> None:
    import yaml

    if output.data:
        print_data(output, {"apiVersion": "v1", "kind": "List", "items": objects})
    else:
        sys.stdout.writelines(f"# {line}\n" for line in remark.splitlines())
        sys.stdout.write(yaml.safe_dump_all(objects, sort_keys=False, width=120))


async def _api_servers(kubeconfig: str, context: str) -> tuple[tuple[str, ...], str]:
    """Where they are, or why that is not known. A cluster that was named must answer."""
    from mooring.install.api_servers import api_servers

    try:
        async with connect(kubeconfig, context) as api:
            return await api_servers(api), "the cluster does not say where its API servers are"
    except UserError as error:
        if kubeconfig or context:
            raise
        return (), f"no cluster was asked where its API servers are ({error})"
