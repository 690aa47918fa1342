"""Settings that work but are insecure: each has a code, and docs/security.md says what it guards against."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from mooring.capabilities.registry import serving
from mooring.clients.kube.api import HttpKubeApi
from mooring.clients.ports import NotFoundError, PortError
from mooring.core.model.finding import Finding, ill, skipped, well
from mooring.process.http.status import is_loopback
from mooring.process.settings.config import Config, host_port, host_ports

_CREDENTIALS: Final = re.compile(r"//[^/@\s\"]+@")


def unsafe(config: Config) -> Iterator[Finding]:
    if not local(config.listen_http, "listen-http") and not config.http_certificates:
        seen = f"listen-http is {config.listen_http}, without http-certificates: each replica made its own certificate"
        fix = "set http-certificates to a directory with tls.crt and tls.key (the chart: http.tlsSecret)"
        yield ill("settings", "MO803", "readers can check the page's certificate", seen, fix, warning=True)
    shown = config.extender_token or config.extender_certificates
    if serving("extender", config.on()) and not local(config.listen_extender, "listen-extender") and not shown:
        seen = f"listen-extender is {config.listen_extender}; no extender-token, no extender-certificates: only 401s"
        fix = "set MOORING_EXTENDER_TOKEN, and urlPrefix http://mooring:TOKEN@HOST:10262/scheduler in the scheduler"
        yield ill("settings", "MO804", "schedulers authenticate", seen, fix, warning=True)
    wide = [pattern for pattern in config.pd_hosts if pattern.partition(":")[0].strip("*?.") == ""]
    if wide:
        seen = f"pd-hosts has {wide[0]!r}: any user who may edit a TidbCluster can make Mooring connect to any address"
        fix = "name the hosts in pd-hosts, e.g. pd.example.com:2379, or each PD with mooring run --pd NS/CLUSTER=URL"
        yield ill("settings", "MO805", "pd-hosts names hosts", seen, fix, warning=True)
    urls = (config.sabakan_url, *(url for given in config.pd.values() for url in given))
    if any(url.startswith("http://") and _CREDENTIALS.search(url) for url in urls):
        seen = "an http:// address has a user and password in it: they travel in plain text"
        fix = "write https:// in sabakan-url and pd, or leave the credentials out"
        yield ill("settings", "MO806", "credentials are encrypted", seen, fix, warning=True)


async def reach(api: HttpKubeApi, config: Config) -> list[Finding]:
    """Who may connect to the webhook where Mooring is installed in the cluster: by its NetworkPolicies."""
    what = "only API servers reach the webhook's port"
    labels = urlencode({"labelSelector": "app.kubernetes.io/name=mooring"})
    if config.webhook_client_ca:
        return [well("webhooks", "webhook-client-ca: only callers with a certificate of it are answered")]
    where = f"namespaces/{config.namespace}"
    try:
        installed = (await api.raw("GET", f"/apis/apps/v1/{where}/deployments?{labels}"))["items"]
        policies = (await api.raw("GET", f"/apis/networking.k8s.io/v1/{where}/networkpolicies"))["items"]
    except NotFoundError:
        return []
    except PortError as error:
        return [skipped("webhooks", what, str(error))]
    _, port = host_port(config.listen_webhook, "listen-webhook")
    for deployment in installed:
        pod = deployment["spec"]["template"]["metadata"].get("labels", {})
        guards = [policy["spec"] for policy in policies if _guards(policy["spec"], pod)]
        rules = [rule for spec in guards for rule in spec.get("ingress", ()) if not rule.get("from")]
        wide = not guards or any(_lets_in(rule, port) for rule in rules)
        if wide:
            seen = f"its NetworkPolicy has no `from` for {port}" if guards else "no NetworkPolicy guards Mooring's pods"
            fix = (
                "helm upgrade … --set 'networkPolicy.nodeCidrs={CIDR}', or mooring manifests --node-cidrs CIDR …"
                f" | kubectl apply -f -   (CIDR: the addresses that API servers call from{await _api_servers(api)})"
            )
            return [ill("webhooks", "MO807", what, f"{seen}: every pod can connect", fix, warning=True)]
    return [well("webhooks", what)] if installed else []


async def _api_servers(api: HttpKubeApi) -> str:
    """The addresses behind the Service kubernetes, where they may be read."""
    labels = urlencode({"labelSelector": "kubernetes.io/service-name=kubernetes"})
    try:
        slices = await api.raw("GET", f"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?{labels}")
    except PortError:
        return ""
    found = [address for one in slices["items"] for end in one.get("endpoints") or () for address in end["addresses"]]
    return f"; they answer at {', '.join(sorted(set(found)))}" if found else ""


def _guards(spec: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    selector = spec.get("podSelector", {})
    ours = selector.get("matchLabels", {}).items() <= labels.items() and not selector.get("matchExpressions")
    return ours and "Ingress" in spec.get("policyTypes", ("Ingress",))


def _lets_in(rule: Mapping[str, Any], port: int) -> bool:
    ports: Sequence[Mapping[str, Any]] = rule.get("ports") or ({},)
    return any(
        not isinstance(first := given.get("port", port), int) or first <= port <= given.get("endPort", first)
        for given in ports
    )


def masked(text: str) -> str:
    """Without the user and password of any URL in it."""
    return _CREDENTIALS.sub("//…@", text)


def local(addresses: str, key: str) -> bool:
    return all(is_loopback(host) for host, _ in host_ports(addresses, key))
