"""Where the API servers of a cluster are: they call webhooks from there, unless a tunnel or a NAT is in between."""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlencode

from mooring.clients.kube.api import HttpKubeApi

_SLICES: Final = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?" + urlencode(
    {"labelSelector": "kubernetes.io/service-name=kubernetes"}
)


async def api_servers(api: HttpKubeApi) -> tuple[str, ...]:
    """The addresses behind the Service `kubernetes`, as CIDRs. None: the cluster does not say. `PortError`: it does not
    answer, or may not be asked."""
    slices = (await api.raw("GET", _SLICES))["items"]
    found = {address for one in slices for end in one.get("endpoints") or () for address in end["addresses"]}
    return tuple(sorted(filter(None, map(_single, found))))


def _single(address: str) -> str:
    """The CIDR of this address alone; "": it is none."""
    try:
        return f"{address}/{ip_address(address).max_prefixlen}"
    except ValueError:
        return ""
