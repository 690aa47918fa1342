"""What a seed means: the shape of a cluster and the deeds of a run, as plain data.

A deed is a moment, a name and two numbers in [0, 1); which object it hits is found out when it happens, from what is
there. So a deed that is left out changes nothing about the others, and a plan can be shrunk, written down and replayed.
"""

import random
from collections.abc import Sequence
from typing import Final

import msgspec

from mooring.capabilities.registry import names

#: The groups of `--faults`, and the deeds in each.
FAULTS: Final[dict[str, tuple[str, ...]]] = {
    "watch": ("watches-cut", "watches-late", "pod-watch-late", "history-compacted"),
    "writes": ("writes-troubled", "answers-lost", "requests-lost"),
    "server": ("server-dead", "server-slow"),
    "pd": ("pd-restarts", "pd-loses-leader", "pd-dark", "pd-slow", "pd-answers-lost", "pd-requests-lost"),
    "registry": ("registry-dark", "registry-slow"),
    "node": ("node-silent",),
    "clock": ("clock-jumps",),
    "leader": ("leader-killed", "leader-killed-before-write", "leader-killed-after-write", "leader-paused"),
    "webhook": ("webhook-away",),
}
LOAD: Final[dict[str, int]] = {
    "rollout": 4,
    "scale": 4,
    "mode-change": 4,
    "mix-off": 1,
    "fast": 2,
    "restart-tikv": 5,
    "evict-leaders": 3,
    "forget-tikv": 3,
    "restart-pd": 1,
    "tidb-rollout": 2,
    "tikv-added": 1,
    "machine-retires": 2,
    "machine-retired": 1,
    "machine-unhealthy": 2,
    "machine-healthy": 3,
    "machine-updates": 1,
    "notice": 4,
    "notice-corrected": 2,
    "notice-withdrawn": 3,
    "notice-to-all": 1,
    "spot-vanishes": 1,
    "spot-returns": 4,
    "app-added": 1,
    "app-deleted": 1,
    "pod-deleted": 2,
    "pod-crashes": 2,
    "pod-heals": 3,
    "feature-off": 1,
    "feature-on": 2,
    "operator-restarts": 1,
}
INTERFERENCE: Final[dict[str, int]] = {
    "cordon": 3,
    "uncordon": 3,
    "person-evicts-store": 2,
    "person-ends-eviction": 2,
    "handoff-mark-deleted": 1,
    "handoff-mark-mangled": 1,
    "leaving-mark-deleted": 2,
    "leaving-mark-mangled": 1,
    "retiring-mark-deleted": 1,
    "retiring-mark-mangled": 1,
    "pod-force-deleted": 2,
    "class-label-edited": 1,
    "node-label-edited": 1,
    "our-taint-removed": 1,
    "taint-by-person": 1,
    "budget-closed": 1,
    "budget-opened": 2,
    "foreign-pods": 1,
}
#: Deeds that matter close together and that chance rarely brings there: each with the range of its second number. The
#: others follow the first within half a minute.
TOGETHER: Final[tuple[tuple[tuple[str, float, float], ...], ...]] = (
    (("tidb-rollout", 0.0, 1.0), ("leader-killed", 0.0, 1.0)),
    (("restart-tikv", 0.0, 1.0), ("person-ends-eviction", 0.7, 1.0)),
    (("notice", 0.0, 0.8), ("leaving-mark-mangled", 0.0, 1.0)),
    (("on-demand-closed", 0.0, 1.0), ("mode-change", 0.0, 0.25), ("scale", 0.8, 1.0)),
)


class App(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    kind: str
    replicas: int
    #: Labels of mix; "" is not switched on, "default" names no mode.
    mode: str = ""
    custom: str = ""
    fast: bool = False
    cpu_milli: int = 200
    start_s: float = 3.0
    grace_s: int = 10
    #: maxUnavailable of its disruption budget; None: it has none.
    budget: int | None = None
    empty_dir: bool = False
    local_volume: bool = False


class Tidb(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    tikv: int
    pd: int = 0
    tidb: int = 0
    regions: int = 60
    reserve: bool = False
    storage: str = ""


class Shape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    features: tuple[str, ...]
    #: Of Mooring.
    replicas: int
    machines: int
    racks: int
    planes: int
    workers: int
    spots: int
    #: Nodes of a pool that only a toleration opens.
    tainted: int
    apps: tuple[App, ...]
    tidbs: tuple[Tidb, ...]
    bare_pods: int = 0
    retire: str = "gentle"
    quota: bool = False


class Deed(msgspec.Struct, frozen=True, array_like=True):
    at_s: float
    what: str
    a: float
    b: float


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    hours: float
    shape: Shape
    deeds: tuple[Deed, ...]


def draw_plan(
    seed: int, *, hours: float = 0.5, faults: Sequence[str] = tuple(FAULTS), features: Sequence[str] | None = None
) -> Plan:
    """`features` None: all of them in half of the seeds, a random subset in the others (swarm testing)."""
    chance = random.Random(f"{seed}/shape")  # noqa: S311
    if features is None:
        features = names() if chance.random() < 0.5 else sorted(chance.sample(names(), chance.randint(1, 4)))
    else:
        chance.random()
    shape = _shape(chance, tuple(features))
    chance = random.Random(f"{seed}/deeds")  # noqa: S311
    minutes = hours * 60
    deeds = _draw(chance, LOAD, round(minutes * chance.uniform(0.7, 1.6)), minutes)
    deeds += _draw(chance, INTERFERENCE, round(minutes * chance.uniform(0.0, 0.5)), minutes)
    chosen = {name: 1 for group in faults for name in FAULTS[group]}
    if chosen:
        deeds += _draw(chance, chosen, round(minutes * chance.uniform(0.1, 0.7)), minutes)
    left_out = {name for group in FAULTS.keys() - set(faults) for name in FAULTS[group]}
    deeds += [d for d in _together(random.Random(f"{seed}/together"), minutes) if d.what not in left_out]  # noqa: S311
    return Plan(seed=seed, hours=hours, shape=shape, deeds=tuple(sorted(deeds, key=lambda d: (d.at_s, d.what))))


def _draw(chance: random.Random, weights: dict[str, int], count: int, minutes: float) -> list[Deed]:
    # Not every kind in every run: what is left out makes room for more of the rest.
    kinds = [name for name in weights if chance.random() < 0.75] or list(weights)
    names = chance.choices(kinds, [weights[name] for name in kinds], k=count)
    spread = chance.choice((1.0, 1.0, 0.3))
    return [
        Deed(
            round(minutes * 60 * chance.uniform(0, spread), 2),
            name,
            _share(chance),
            _share(chance),
        )
        for name in names
    ]


def _together(chance: random.Random, minutes: float) -> list[Deed]:
    """In one run of five."""
    if chance.random() >= 0.2:
        return []
    first_s = minutes * 60 * chance.uniform(0.1, 0.7)
    return [
        Deed(
            round(first_s + (chance.uniform(1.0, 30.0) if number else 0.0), 2),
            name,
            _share(chance),
            round(chance.uniform(low, high - 0.0001), 4),
        )
        for number, (name, low, high) in enumerate(chance.choice(TOGETHER))
    ]


def deed_names() -> list[str]:
    """All that a plan may have."""
    together = {name for deeds in TOGETHER for name, *_ in deeds}
    return sorted({*LOAD, *INTERFERENCE, *(name for group in FAULTS.values() for name in group), *together})


def _share(chance: random.Random) -> float:
    """In [0, 1), short enough to be read."""
    return min(round(chance.random(), 4), 0.9999)


def _shape(chance: random.Random, features: tuple[str, ...]) -> Shape:
    machines = chance.randint(10, 20)
    planes = chance.choice((1, 3, 3))
    return Shape(
        features=features,
        replicas=chance.choice((1, 2, 2, 3)),
        machines=machines,
        racks=chance.randint(2, 5),
        planes=planes,
        workers=machines - planes - chance.randint(1, 3),
        spots=chance.randint(4, 12),
        tainted=chance.choice((0, 0, 2)),
        apps=tuple(_app(chance, number) for number in range(chance.randint(2, 6))),
        tidbs=tuple(_tidb(chance, number) for number in range(chance.choice((0, 1, 1, 1, 2)))),
        bare_pods=chance.choice((0, 0, 1, 2)),
        retire=chance.choice(("gentle", "gentle", "gentle", "hold", "immediate")),
        quota=chance.random() < 0.2,
    )


def _app(chance: random.Random, number: int) -> App:
    kind = chance.choice(("Deployment", "Deployment", "StatefulSet", "Deployment", "DaemonSet"))
    mode = chance.choice(("", "default", "all-in-on-demand", "all-in-spot", "majority-in-on-demand", "custom"))
    managed = kind != "DaemonSet" and mode != ""
    return App(
        name=f"app{number}",
        kind=kind,
        replicas=chance.randint(1, 7),
        mode=mode if managed else "",
        custom=chance.choice(("1", "2", "30pct")) if managed and mode == "custom" else "",
        fast=managed and kind == "Deployment" and chance.random() < 0.3,
        cpu_milli=chance.choice((100, 200, 500, 1000)),
        start_s=chance.choice((2.0, 3.0, 3.0, 20.0)),
        grace_s=chance.choice((5, 10, 30)),
        budget=chance.choice((None, None, None, 1, 1, 0)) if kind != "DaemonSet" else None,
        empty_dir=chance.random() < 0.15,
        local_volume=kind == "StatefulSet" and chance.random() < 0.15,
    )


def _tidb(chance: random.Random, number: int) -> Tidb:
    return Tidb(
        name=("demo", "other")[number],
        tikv=chance.choice((1, 3, 3, 4, 5)),
        pd=chance.choice((0, 3)),
        tidb=chance.choice((0, 2, 3)),
        regions=chance.choice((20, 40, 80)),
        reserve=chance.random() < 0.4,
        storage=chance.choice(("", "", "", "remote", "local-ssd")),
    )
