"""A whole list, page by page, for commands that look once. What is followed for long has an informer."""

from typing import Any

from mooring.clients.ports import KubeApi
from mooring.core.model.kinds import Kind


async def list_all(api: KubeApi, kind: Kind) -> list[Any]:
    found: list[Any] = []
    token = ""
    while True:
        page = await api.list(kind, continue_token=token)
        found += page.items
        token = page.continue_token
        if not token:
            return found
