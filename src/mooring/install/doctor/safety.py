"""Settings that work but are insecure: each has a code, and docs/security.md says what it guards against."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import Any, Final
from urllib.parse import urlencode

from mooring.capabilities.registry import serving
from mooring.clients.kube.api import HttpKubeApi
from mooring.clients.ports import NotFoundError, PortError
from mooring.core.model.finding import Finding, ill, skipped, well
from mooring.install.api_servers import api_servers
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
    try:
        servers = await api_servers(api)
    except PortError:
        servers = ()
    for deployment in installed:
        pod = deployment["spec"]["template"]["metadata"].get("labels", {})
        guards = [policy["spec"] for policy in policies if _guards(policy["spec"], pod)]
        every = [rule for spec in guards for rule in spec.get("ingress", ())]
        rules = [rule for rule in every if _lets_in(rule, port)]
        if not guards or not all(rule.get("from") for rule in rules):
            seen = f"its NetworkPolicy has no `from` for {port}" if guards else "no NetworkPolicy guards Mooring's pods"
            fix = _closing(deployment, config, servers)
            return [ill("webhooks", "MO807", what, f"{seen}: every pod can connect", fix, warning=True)]
        blocks = _blocks(rules)
        missing = [one for one in servers if not any(_holds(block, one) for block in blocks)]
        if missing:
            seen = f"its NetworkPolicy does not let {_bare(missing)} reach {port}, where API servers are now"
            # Those that an administrator named are let in to the other ports, too.
            named = [block["cidr"] for block in _blocks(rule for rule in every if rule not in rules)]
            fix = _following(deployment, config, named, missing)
            return [ill("webhooks", "MO807", "every API server reaches the webhook's port", seen, fix, warning=True)]
    return [well("webhooks", what)] if installed else []


def _closing(deployment: Mapping[str, Any], config: Config, servers: Sequence[str]) -> str:
    """The command that leaves the webhook's port to API servers alone."""
    remark = "CIDR: the addresses that API servers call from; the chart: networkPolicy.nodeCidrs"
    if servers:
        remark = f"API servers answer at {_bare(servers)}; where they call from others: nodeCidrs, --node-cidrs"
    if _release(deployment):
        more = "" if servers else ",networkPolicy.nodeCidrs={CIDR…}"
        given = f" --set 'networkPolicy.enabled=true,networkPolicy.webhookOpenToAll=false{more}'"
    else:
        given = "" if servers else " --node-cidrs CIDR…"
    return f"{_install_again(deployment, config, given)}   ({remark})"


def _following(deployment: Mapping[str, Any], config: Config, named: Sequence[str], missing: Sequence[str]) -> str:
    """The command that lets them in: asked of the cluster again, or beside what an administrator named."""
    listed = ",".join(dict.fromkeys([*named, *missing]))
    if _release(deployment):
        given = f" --set 'networkPolicy.nodeCidrs={{{listed}}}'" if named else ""
    else:
        given = f" --node-cidrs {listed}" if named else ""
    return f"{_install_again(deployment, config, given)}   (until then they admit pods without asking mix)"


def _install_again(deployment: Mapping[str, Any], config: Config, given: str) -> str:
    """The network policy alone, or the release with its own values: the image stays."""
    if release := _release(deployment):
        return f"helm upgrade {release} deploy/chart/mooring -n {config.namespace} --reuse-values{given}"
    on = ",".join(f"{name}=true" for name in sorted(config.on()))
    own = f"mooring manifests --network-policy --namespace {config.namespace} --features {on}"
    return f"{own}{given} | kubectl apply -f -"


def _release(deployment: Mapping[str, Any]) -> str:
    """Helm's name of it; "": it was installed by other means."""
    return str(deployment.get("metadata", {}).get("annotations", {}).get("meta.helm.sh/release-name", ""))


def _bare(cidrs: Sequence[str]) -> str:
    return ", ".join(cidr.partition("/")[0] for cidr in cidrs)


def _blocks(rules: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [peer["ipBlock"] for rule in rules for peer in rule.get("from") or () if "ipBlock" in peer]


def _holds(block: Mapping[str, Any], single: str) -> bool:
    """Whether the one address of a CIDR is in an `ipBlock`."""
    address = ip_network(single).network_address
    inside = [address in ip_network(cidr, strict=False) for cidr in (block["cidr"], *block.get("except", ()))]
    return inside[0] and not any(inside[1:])


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
