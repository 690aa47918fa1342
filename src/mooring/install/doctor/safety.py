"""Settings that work but are insecure: each has a code, and docs/security.md says what it guards against."""

import re
from collections.abc import Iterator
from typing import Final

from mooring.capabilities.registry import serving
from mooring.install.doctor.finding import Finding, ill
from mooring.process.http.status import is_loopback
from mooring.process.settings.config import Config, host_port

_CREDENTIALS: Final = re.compile(r"//[^/@\s\"]+@")


def unsafe(config: Config) -> Iterator[Finding]:
    if not _local(config.listen_http, "listen-http") and not config.http_certificates:
        seen = f"listen-http is {config.listen_http}, without http-certificates: the token travels in plain text"
        fix = "set http-certificates to a directory with tls.crt and tls.key (the chart: http.tlsSecret)"
        yield ill("settings", "MO803", "the page is served over TLS", seen, fix, warning=True)
    shown = config.extender_token or config.extender_certificates
    if serving("extender", config.on()) and not _local(config.listen_extender, "listen-extender") and not shown:
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


def masked(text: str) -> str:
    """Without the user and password of any URL in it."""
    return _CREDENTIALS.sub("//…@", text)


def _local(address: str, key: str) -> bool:
    return is_loopback(host_port(address, key)[0])
