"""Writes only while we lead: the last check before a request is sent.

Wrap any `KubeApi`; reads pass, and everything else asks `may_write` first. It shortens the window in which two leaders
overlap to a request under way, and preconditions on the objects close that (docs/decisions.md).
"""

from collections.abc import Callable
from typing import Any, Final, cast

from mooring.clients.ports import KubeApi, PortError
from mooring.core.model.kinds import Kind

#: What a `KubeApi` only looks with. Whatever else it can do counts as a write.
READS: Final = frozenset({"list", "watch", "get"})


class NotLeaderError(PortError):
    """The lease was not renewed in time, so nothing was sent and nothing was changed."""


class _Fence:
    def __init__(self, api: KubeApi, may_write: Callable[[], bool]) -> None:
        self._api = api
        self._may_write = may_write

    def __getattr__(self, verb: str) -> Any:
        if verb in READS:
            return getattr(self._api, verb)

        async def write(*args: Any, **how: Any) -> Any:
            if not self._may_write():
                what = written(verb, args)
                raise NotLeaderError(f"{what}: not sent, this process does not hold the lease (any more)")
            return await getattr(self._api, verb)(*args, **how)

        return write


def fenced(api: KubeApi, may_write: Callable[[], bool]) -> KubeApi:
    """A `KubeApi` whose writes raise `NotLeaderError` unless `may_write()`."""
    return cast("KubeApi", _Fence(api, may_write))


def written(verb: str, args: tuple[Any, ...]) -> str:
    """`patch Pod shop/web-0`: what a call of a `KubeApi` writes, from its positional arguments."""
    kind, rest = (args[0], args[1:]) if isinstance(args[0], Kind) else (Kind.POD, args)
    if isinstance(rest[0], dict):
        metadata = rest[0].get("metadata") or {}
        return f"{verb} {kind} {metadata.get('namespace', '')}/{metadata.get('name', '')}"
    return f"{verb} {kind} {rest[0]}/{rest[1]}"
