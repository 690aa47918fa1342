"""Which registry a URL names.

http://10.0.0.1:10080                    sabakan
netbox+https://netbox.example.com        NetBox
file:///etc/mooring/machines.yaml        a list of machines; also https://…/machines.yaml (.yml, .json)
"""

from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from mooring.clients.ports import MachineRegistry
from mooring.clients.registry.file import MachineList
from mooring.clients.registry.netbox import Netbox, NetboxSettings, check_filters, devices_url
from mooring.clients.registry.sabakan.client import Sabakan, check_variables, graphql_url

_LISTS: Final = frozenset({".yaml", ".yml", ".json"})


def open_registry(url: str, netbox: NetboxSettings | None = None) -> MachineRegistry:
    """Raises ValueError for a URL that names none."""
    check_url(url)
    if _is_netbox(url):
        return Netbox(url, netbox)
    return MachineList(url) if _is_list(url) else Sabakan(url)


def check_url(url: str) -> None:
    """Raises ValueError."""
    if _is_netbox(url):
        devices_url(url)
    elif not _is_list(url):
        graphql_url(url)


def check_query(url: str, document: Any) -> dict[str, Any]:
    """The query for this registry, once it is known to be one that it understands. Raises ValueError."""
    if _is_netbox(url):
        return check_filters(document)
    if url and _is_list(url):
        raise ValueError("a list of machines takes no query")
    return check_variables(document)


def _is_netbox(url: str) -> bool:
    return url.startswith("netbox+")


def _is_list(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return parts.netloc == "" and parts.path.startswith("/")
    if not parts.scheme:
        return parts.path.startswith("/")
    return parts.scheme in {"http", "https"} and PurePosixPath(parts.path).suffix in _LISTS
