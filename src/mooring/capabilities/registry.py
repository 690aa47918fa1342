"""All capabilities. A new one is its own package and one line here."""

from collections.abc import Container, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Final

from mooring.core.model.descriptor import Descriptor

#: Name → where its descriptor is; imported when it is asked for.
CAPABILITIES: Final[dict[str, str]] = {
    "balance": "mooring.capabilities.balance.descriptor",
    "drain": "mooring.capabilities.drain.descriptor",
    "fleet": "mooring.capabilities.fleet.descriptor",
    "handoff": "mooring.capabilities.handoff.descriptor",
    "home": "mooring.capabilities.home.descriptor",
    "mix": "mooring.capabilities.mix.descriptor",
}


def names() -> tuple[str, ...]:
    """Every feature there is, in order."""
    return tuple(sorted(CAPABILITIES))


def descriptor(name: str) -> Descriptor:
    return _described(CAPABILITIES[name])


@cache
def _described(module: str) -> Descriptor:
    found: Descriptor = import_module(module).DESCRIPTOR
    return found


def descriptors() -> Iterator[Descriptor]:
    return (descriptor(name) for name in names())


def limits() -> Mapping[str, tuple[int | None, str]]:
    """Kind of target → its limit, and what it stands for."""
    return {kind: limit for one in descriptors() for kind, limit in one.limits.items()}


def uncapped() -> tuple[str, ...]:
    """Sources of which any number may wait."""
    return tuple(source for one in descriptors() for source in one.uncapped)


def serving(what: str, on: Container[str]) -> bool:
    """Does one of the features that are on serve this?"""
    return any(what in one.serves for one in descriptors() if one.name in on)


def hooks(on: Container[str]) -> frozenset[str]:
    """What the API server asks of us: about pods and workloads, about evictions. Nothing: no webhook is served."""
    return frozenset(what for what in ("webhook", "gate") if serving(what, on))


def server_of(what: str) -> Descriptor:
    """The one capability that serves this."""
    (found,) = (one for one in descriptors() if what in one.serves)
    return found


def asking(what: str, on: Container[str]) -> tuple[str, ...]:
    """The features that are on and ask this."""
    return tuple(one.name for one in descriptors() if one.name in on and what in one.asks)


def sources() -> tuple[str, ...]:
    return tuple(source for one in descriptors() for source in one.sources)
