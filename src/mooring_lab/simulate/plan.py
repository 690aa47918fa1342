"""What a seed means: the shape of a cluster and the actions of a run, as plain data.

An action is a moment, the name of an event in the catalogue and two numbers in [0, 1); which object it hits is found
when it happens, from what is there. So one that is left out changes nothing about the others, and a plan can be shrunk,
written down and replayed.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from mooring.capabilities.registry import names
from mooring.core.model.leaders import DRIVERS

#: The groups of `--faults`, and the actions in each.
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
#: Actions that matter close together and that chance rarely brings there: each with the range of its second number. The
#: others follow the first within half a minute.
TOGETHER: Final[tuple[tuple[tuple[str, float, float], ...], ...]] = (
    (("tidb-rollout", 0.0, 1.0), ("leader-killed", 0.0, 1.0)),
    (("restart-tikv", 0.0, 1.0), ("person-ends-eviction", 0.7, 1.0)),
    (("notice", 0.0, 0.8), ("leaving-mark-mangled", 0.0, 1.0)),
    (("on-demand-closed", 0.0, 1.0), ("mode-change", 0.0, 0.25), ("scale", 0.8, 1.0)),
)
#: Rare and wide: in one run of three, by a stream of their own, so that one more here changes no other draw.
RARE: Final[tuple[str, ...]] = (
    *("nodes-silent", "drain", "notice-to-all"),
    *("machine-flaps", "machine-row-bad", "machine-never-boots"),
)

#: In one run of three, by a stream of their own: evictions by others and requests of people, with and without a cordon,
#: repeated, given up, called off.
EVICTIONS: Final[dict[str, int]] = {
    "drain": 3,
    "evictions": 4,
    "drain-asked": 3,
    "drain-called-off": 1,
    "restart-asked": 3,
    "webhook-away": 1,
    "uncordon": 2,
}
#: In one run of four, by a stream of their own: Karpenter ends nodes at a moment, and evictions are held for a few
#: minutes at the most.
ENDED: Final[tuple[str, ...]] = ("node-ended", "evictions", "drain")
#: In one run of four, by a stream of their own: spot nodes are in zones, and one zone is cut off, alone, with a notice
#: of 30 s to all, or while on-demand is full.
ZONES: Final[tuple[tuple[str, ...], ...]] = (
    ("zone-silent",),
    ("zone-silent", "notice-to-all"),
    ("on-demand-closed", "zone-silent"),
)
#: In one run of four, by a stream of their own: an etcd, a Patroni or a system behind a hook, and what happens to one.
SYSTEMS: Final[dict[str, int]] = {
    "member-restarts": 5,
    "member-silent": 2,
    "leadership-moves": 3,
    "drain-asked": 1,
    "leader-killed": 1,
}


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
    #: The driver of a system with leaders: etcd, patroni, hook.
    leaders: str = ""


class Tidb(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    tikv: int
    pd: int = 0
    tidb: int = 0
    regions: int = 60
    reserve: bool = False
    storage: str = ""
    #: TiKV 8.5.5 or later: told to end, a store has PD take its leaders off.
    graceful: bool = False
    #: The TidbCluster whose PD this one uses; "": its own.
    shares: str = ""
    #: Voters of each region.
    voters: int = 3
    #: Kept by tidb-operator v2.
    v2: bool = False


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
    #: Labels that tell spot from on-demand: with two, every second node has Karpenter's.
    schemes: int = 1
    #: Zones that spot nodes are in, beside the machines of the racks of these numbers; 0: they name none.
    zones: int = 0
    #: Of `drain.max-hold-s`; 0: its default, which no short run reaches.
    max_hold_s: float = 0.0


class Action(msgspec.Struct, frozen=True, array_like=True):
    at_s: float
    what: str
    a: float
    b: float


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    hours: float
    shape: Shape
    actions: tuple[Action, ...]


def draw_plan(
    seed: int, *, hours: float = 0.5, faults: Sequence[str] = tuple(FAULTS), features: Sequence[str] | None = None
) -> Plan:
    """`features` None: all of them in half of the seeds, a random subset in the others (swarm testing)."""
    chance = random.Random(f"{seed}/shape")  # noqa: S311
    if features is None:
        features = names() if chance.random() < 0.5 else sorted(chance.sample(names(), chance.randint(1, 4)))
    else:
        chance.random()
    shape = _with_odd_tidbs(_shape(chance, tuple(features)), random.Random(f"{seed}/tidbs"))  # noqa: S311
    shape = _with_v2(shape, random.Random(f"{seed}/v2"))  # noqa: S311
    if random.Random(f"{seed}/schemes").random() < 0.25:  # noqa: S311
        shape = msgspec.structs.replace(shape, schemes=2)
    chance = random.Random(f"{seed}/deeds")  # noqa: S311
    minutes = hours * 60
    actions = _draw(chance, LOAD, round(minutes * chance.uniform(0.7, 1.6)), minutes)
    actions += _draw(chance, INTERFERENCE, round(minutes * chance.uniform(0.0, 0.5)), minutes)
    chosen = {name: 1 for group in faults for name in FAULTS[group]}
    if chosen:
        actions += _draw(chance, chosen, round(minutes * chance.uniform(0.1, 0.7)), minutes)
    left_out = {name for group in FAULTS.keys() - set(faults) for name in FAULTS[group]}
    actions += [d for d in _together(random.Random(f"{seed}/together"), minutes) if d.what not in left_out]  # noqa: S311
    actions += _rare(random.Random(f"{seed}/rare"), minutes, "node" in faults)  # noqa: S311
    actions += _evictions(random.Random(f"{seed}/evictions"), minutes, left_out)  # noqa: S311
    if (ended := _ended(random.Random(f"{seed}/ended"), minutes))[0]:  # noqa: S311
        shape = msgspec.structs.replace(shape, max_hold_s=ended[0])
        actions += ended[1]
    zones, cut = _zones(random.Random(f"{seed}/zones"), minutes, shape.racks)  # noqa: S311
    if zones and "node" in faults:
        shape = msgspec.structs.replace(shape, zones=zones)
        actions += cut
    systems, happens = _systems(random.Random(f"{seed}/systems"), minutes, left_out)  # noqa: S311
    shape = msgspec.structs.replace(shape, apps=(*shape.apps, *systems)) if systems else shape
    actions += happens
    return Plan(seed=seed, hours=hours, shape=shape, actions=tuple(sorted(actions, key=lambda d: (d.at_s, d.what))))


def _draw(chance: random.Random, weights: dict[str, int], count: int, minutes: float) -> list[Action]:
    # Not every kind in every run: what is left out makes room for more of the rest.
    kinds = [name for name in weights if chance.random() < 0.75] or list(weights)
    names = chance.choices(kinds, [weights[name] for name in kinds], k=count)
    spread = chance.choice((1.0, 1.0, 0.3))
    return [
        Action(
            round(minutes * 60 * chance.uniform(0, spread), 2),
            name,
            _share(chance),
            _share(chance),
        )
        for name in names
    ]


def _together(chance: random.Random, minutes: float) -> list[Action]:
    """In one run of five."""
    if chance.random() >= 0.2:
        return []
    first_s = minutes * 60 * chance.uniform(0.1, 0.7)
    return [
        Action(
            round(first_s + (chance.uniform(1.0, 30.0) if number else 0.0), 2),
            name,
            _share(chance),
            round(chance.uniform(low, high - 0.0001), 4),
        )
        for number, (name, low, high) in enumerate(chance.choice(TOGETHER))
    ]


def _rare(chance: random.Random, minutes: float, node_faults: bool) -> list[Action]:
    if chance.random() >= 1 / 3:
        return []
    name = chance.choice(RARE if node_faults else RARE[1:])
    # A tenth of the notices to all are of 30 s: here all of them.
    first = 0.9 if name == "notice-to-all" else 0.0
    at_s = round(minutes * 60 * chance.uniform(0.1, 0.8), 2)
    return [Action(at_s, name, round(first + (1 - first) * _share(chance), 4) - 0.0001 * (first > 0), _share(chance))]


def _evictions(chance: random.Random, minutes: float, left_out: set[str]) -> list[Action]:
    if chance.random() >= 1 / 3:
        return []
    weights = {name: weight for name, weight in EVICTIONS.items() if name not in left_out}
    names = chance.choices(list(weights), list(weights.values()), k=chance.randint(2, 10))
    return [
        Action(round(minutes * 60 * chance.uniform(0.05, 0.9), 2), name, _share(chance), _share(chance))
        for name in names
    ]


def _ended(chance: random.Random, minutes: float) -> tuple[float, list[Action]]:
    """In one run of four."""
    if chance.random() >= 0.25:
        return 0.0, []
    names = ["node-ended", *chance.choices(ENDED, k=chance.randint(1, 4))]
    return chance.choice((120.0, 240.0, 3000.0)), [
        Action(round(minutes * 60 * chance.uniform(0.05, 0.8), 2), name, _share(chance), _share(chance))
        for name in names
    ]


def _systems(chance: random.Random, minutes: float, left_out: set[str]) -> tuple[tuple[App, ...], list[Action]]:
    if chance.random() >= 0.25:
        return (), []
    driver, replicas = chance.choice(DRIVERS), chance.choice((3, 3, 5))
    weights = {name: weight for name, weight in SYSTEMS.items() if name not in left_out}
    names = chance.choices(list(weights), list(weights.values()), k=chance.randint(2, 8))
    mode = chance.choice(("", "", "default"))
    system = App(name="db", kind="StatefulSet", replicas=replicas, leaders=driver, mode=mode)
    return (system,), [
        Action(round(minutes * 60 * chance.uniform(0.05, 0.9), 2), name, _share(chance), _share(chance))
        for name in names
    ]


def _zones(chance: random.Random, minutes: float, racks: int) -> tuple[int, list[Action]]:
    if chance.random() >= 0.25:
        return 0, []
    zones, first_s = chance.randint(1, racks), minutes * 60 * chance.uniform(0.1, 0.7)
    return zones, [
        Action(
            round(first_s + 10.0 * number, 2), name, 0.95 if name == "notice-to-all" else _share(chance), _share(chance)
        )
        for number, name in enumerate(chance.choice(ZONES))
    ]


def action_names() -> list[str]:
    """All that a plan may have."""
    together = {name for actions in TOGETHER for name, *_ in actions}
    faults = {name for group in FAULTS.values() for name in group}
    return sorted(
        {
            *LOAD,
            *INTERFERENCE,
            *faults,
            *together,
            *RARE,
            *EVICTIONS,
            *SYSTEMS,
            *ENDED,
            *(n for names in ZONES for n in names),
        }
    )


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
    found = Tidb(
        name=("demo", "other")[number],
        tikv=chance.choice((1, 3, 3, 4, 5)),
        pd=chance.choice((0, 3)),
        tidb=chance.choice((0, 2, 3)),
        regions=chance.choice((20, 40, 80)),
        reserve=chance.random() < 0.4,
        storage=chance.choice(("", "", "", "remote", "local-ssd")),
    )
    # Not drawn: the days of earlier seeds stay as they are but for this.
    return msgspec.structs.replace(found, graceful=(found.tikv + found.tidb) % 2 == 1)


def _with_odd_tidbs(shape: Shape, chance: random.Random) -> Shape:
    """Two clusters on one PD, and regions with two voters, by a stream of their own: no other draw changes."""
    shares, two = chance.random() < 0.5, chance.random() < 1 / 6
    tidbs = [msgspec.structs.replace(one, voters=2) if two else one for one in shape.tidbs]
    if shares and len(tidbs) == 2:
        tidbs[1] = msgspec.structs.replace(tidbs[1], pd=0, shares=tidbs[0].name)
    return msgspec.structs.replace(shape, tidbs=tuple(tidbs))


def _with_v2(shape: Shape, chance: random.Random) -> Shape:
    """One cluster with a PD of its own is kept by tidb-operator v2, by a stream of its own: no other draw changes."""
    if not shape.tidbs or any(one.shares for one in shape.tidbs) or chance.random() >= 0.25:
        return shape
    *others, last = shape.tidbs
    v2 = msgspec.structs.replace(last, v2=True, storage="")
    return msgspec.structs.replace(shape, tidbs=(*others, v2))


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# What happened in a run, counted by name: shows that the simulation reaches what it is meant to.


#: Situations, and what each means.
SITUATIONS: Final[dict[str, str]] = {
    "operator-queued-balance": "a source proposed an operator",
    "operator-queued-fleet": "a source proposed an operator",
    "operator-queued-handoff": "a source proposed an operator",
    "operator-queued-home": "a source proposed an operator",
    "operator-queued-mix": "a source proposed an operator",
    "operator-queued-spot": "a source proposed an operator",
    "operator-resumed": "a new leader read an operator back from its mark",
    "operator-canceled": "an operator ended without having reached its goal",
    "operator-failed": "an operator gave up",
    "operator-waited-on-a-fact": "what is broken already kept an operator waiting",
    "operator-parked-by-budget": "a disruption budget refused an eviction",
    "write-conflicted": "another client was faster, and the operator decided again",
    "write-unanswered": "a write got no answer, so its object was read",
    "killed-between-mark-and-deletion": "a hand-over was interrupted between its mark and the deletion of its pod",
    "killed-with-scheduler-in-pd": "a replica died while its evict-leader scheduler stood in PD",
    "killed-with-detached-pod": "a replica died while a pod of its was detached",
    "killed-while-retiring": "a replica died while a node was being emptied",
    "killed-while-node-reserved": "a replica died while a node was reserved for a member",
    "two-leaders": "a paused leader went on while another led",
    "late-write-of-old-leader": "a paused leader wrote after it went on",
    "withdrawn-after-replacement-stood": "a notice was withdrawn when a replacement was already Ready",
    "noticed-node-had-tikv": "a node with a TiKV pod got notice",
    "noticed-while-retiring": "a node got notice while a machine was retiring",
    "node-vanished-with-mark": "a node vanished that carried a mark of ours",
    "no-execute-set": "the NoExecute taint of a retiring machine was set",
    "no-execute-lifted": "that taint was taken off again",
    "cordoned-by-us": "we cordoned a node",
    "cordon-lifted-by-us": "we took our cordon off",
    "pod-detached": "a pod was detached so that its replacement comes first",
    "pod-evicted-by-us": "we evicted a pod",
    "tikv-deleted-by-us": "we deleted a TiKV pod without leaders",
    "v2-tikv-deleted-by-us": "we deleted a TiKV pod of tidb-operator v2, which takes its leaders off",
    "store-eviction-begun": "we put an evict-leader scheduler into PD",
    "store-eviction-ended": "we took it out again",
    "pd-restarted-during-eviction": "PD restarted while leaders were leaving a store",
    "pd-leader-transferred": "we asked PD to hand its leadership on",
    "pd-operator-added": "balance gave PD an operator",
    "pd-scheduler-paused": "balance paused a scheduler of PD",
    "node-reserved": "a node was reserved for a member",
    "control-plane-changed": "the stored cluster got another control plane",
    "worker-removed": "a worker left the stored cluster",
    "webhook-refused": "the API server found no webhook and went by its failure policy",
    "pod-admitted-on-demand": "the webhook tied a pod to on-demand nodes",
    "pod-admitted-spot": "the webhook let a pod prefer spot nodes",
    "pod-relaxed": "a pod that found no on-demand room was let go elsewhere",
    "feature-off-with-operator-running": "a feature was switched off while its operator ran",
    "person-removed-our-scheduler": "a person took our evict-leader scheduler out of PD",
    "mark-gone-under-operator": "a person deleted a mark while its operator ran",
    "watch-lagged-during-operator": "an operator ran while the watches lagged",
    "member-came-home": "a recreated member was bound to the node it had",
    "below-the-on-demand-floor": "a workload had fewer on-demand replicas than it asks for",
    "quorum-kept-under-notice": "a StatefulSet's pod on a node with notice went while a quorum stayed",
    "leader-changed": "another replica took the lease",
    "eviction-by-others-held": "the gate or a budget told a client to try again",
    "eviction-by-others-passed": "an eviction by another client took its pod",
    "eviction-held-to-the-end": "max-hold-s ended the waiting of an eviction",
    "eviction-passed-before-the-end-of-a-node": "an eviction passed right before Karpenter would have deleted by force",
    "deleted-by-force-at-the-end-of-a-node": "Karpenter deleted what was left on a node",
    "eviction-judged": "the gate let a guarded pod go, and it was looked at what was lost",
    "led-member-deleted-by-us": "a member of an etcd, a Patroni or a hook's system went, and it was looked at who led",
    "leadership-moved-by-us": "we had leadership handed on",
    "blocked-with-reason": "something ended as blocked, with a reason a person can act on",
}


def coverage_names() -> list[str]:
    return sorted([*(f"action {name}" for name in action_names()), *SITUATIONS])


class Coverage:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def hit(self, name: str, times: int = 1) -> None:
        self.counts[name] += times


def never(counts: Counter[str]) -> list[str]:
    """Names that did not fire."""
    return [name for name in coverage_names() if not counts[name]]
