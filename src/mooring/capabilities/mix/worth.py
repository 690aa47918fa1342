"""What mix is worth: how many replicas are on spot, whether every floor is kept, and what that saves.

A saving is what the spot nodes under the replicas would cost more as on-demand ones: of each node the share that the
replica asks for, by the prices that an administrator gave. No price, no figure.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec

from mooring.capabilities.mix.rebalance.health import Health
from mooring.capabilities.mix.targets import Target
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Node, PodShape
from mooring.core.world.read import WorldRead

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_HOURS_A_MONTH: Final = 730
_Price = Annotated[float, msgspec.Meta(ge=0, le=1e6)]

GAUGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "mooring_mix_replicas": ("Replicas of workloads that mix manages, by class of their node", ("on",)),
    "mooring_mix_floors": (
        "Workloads by whether as many replicas are Ready on on-demand nodes as they ask for",
        ("is",),
    ),
    "mooring_mix_relaxed_pods": ("Pods that only prefer on-demand, since it was full when they were created", ()),
    "mooring_mix_saved_a_month": ("Saved a month against on-demand nodes alone, by mix.prices", ()),
}


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Of an hour."""

    on_demand: _Price
    spot: _Price


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: Shown with each sum, e.g. `USD`.
    currency: str = ""
    #: An hour of a machine by its instance type (label `node.kubernetes.io/instance-type`), e.g.
    #: `m7i.large: {on-demand: 0.1, spot: 0.03}`.
    types: dict[str, Price] = {}
    #: An hour of one CPU, for machines of other types: `{on-demand: 0.04, spot: 0.012}`.
    cpu: Price | None = None

    @property
    def known(self) -> bool:
        return bool(self.types) or self.cpu is not None

    def saved(self, shape: PodShape, node: Node) -> float:
        """In an hour, by a replica of this shape on this spot node."""
        price, share = self.types.get(node.labels.get(INSTANCE_TYPE, "")), 0.0
        if price is not None:
            cpu, memory = shape.cpu_milli / max(1, node.cpu_milli), shape.memory_bytes / max(1, node.memory_bytes)
            share = min(1.0, max(cpu, memory))
        elif self.cpu is not None:
            price, share = self.cpu, shape.cpu_milli / 1000
        return 0.0 if price is None else share * (price.on_demand - price.spot)


class Worth(msgspec.Struct, frozen=True, gc=False):
    """Of one workload, or of all of them."""

    replicas: int = 0
    on_spot: int = 0
    floors_kept: int = 0
    floors_broken: int = 0
    relaxed: int = 0
    #: A month; 0 without prices.
    saved: float = 0.0


def worth_of(health: Health, target: Target, prices: Prices, world: WorldRead) -> Worth:
    floor, on_spot, safe = target.on_demand(health.wanted), health.on_spot, health.safe
    saved = _saved(health, prices, world) if on_spot and prices.known else 0.0
    return Worth(len(health.pods), on_spot, int(0 < floor <= safe), int(safe < floor), health.relaxed, saved)


def _saved(health: Health, prices: Prices, world: WorldRead) -> float:
    nodes = ((pod, world.node(pod.node)) for pod in health.pods if world.node_class(pod.node) is NodeClass.SPOT)
    return saved_a_month(((pod.shape, node) for pod, node in nodes if node is not None), prices)


def saved_a_month(on_spot: Iterable[tuple[PodShape, Node]], prices: Prices) -> float:
    return _HOURS_A_MONTH * sum(prices.saved(shape, node) for shape, node in on_spot)


def together(found: Iterable[Worth]) -> Worth:
    rows = tuple(found)
    return Worth(**{name: sum(getattr(one, name) for one in rows) for name in Worth.__struct_fields__})


def figures(all_: Worth) -> Iterator[tuple[str, Mapping[str, str], float]]:
    yield "mooring_mix_replicas", {"on": "spot"}, float(all_.on_spot)
    yield "mooring_mix_replicas", {"on": "other"}, float(all_.replicas - all_.on_spot)
    yield "mooring_mix_floors", {"is": "kept"}, float(all_.floors_kept)
    yield "mooring_mix_floors", {"is": "broken"}, float(all_.floors_broken)
    yield "mooring_mix_relaxed_pods", {}, float(all_.relaxed)
    yield "mooring_mix_saved_a_month", {}, all_.saved


def told(all_: Worth, prices: Prices) -> Mapping[str, Any]:
    """`saved` is a month's, and None without prices."""
    saved = all_.saved if prices.known else None
    return {**msgspec.to_builtins(all_), "saved": saved, "currency": prices.currency}


def last_line(worth: Mapping[str, Any]) -> str:
    """What `mooring mix status` ends with."""
    share = 100 * worth["on_spot"] // max(1, worth["replicas"])
    broken, kept = worth["floors_broken"], worth["floors_kept"]
    parts = [f"{share} % of replicas on spot", *saving(worth["saved"], worth["currency"])]
    parts.append(f"floors: {kept} kept, {broken} broken" if kept or broken else "no floor is asked for")
    parts += [f"{worth['relaxed']} relaxed"] if worth["relaxed"] else []
    return "; ".join(parts)


def saving(saved: float | None, currency: str) -> Iterator[str]:
    if saved is not None:
        sum_ = f"{saved:,.0f} {currency}".rstrip()
        yield f"about {sum_} a month less than all on-demand (prices from mix.prices)"
