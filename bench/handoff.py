"""A thousand TiKV pods in fifty clusters under watch, nothing asked of them: what does a replica cost then?

    python -m bench handoff

Time is virtual, an hour of it, so the figure is CPU per hour of idling; PD is counted by its calls. A PD is looked at
once per cluster and interval, however many pods it has.
"""

import logging
import time
from collections import deque

import structlog

from bench.spine import pd_view, tidb_cluster, tikv_pod

CLUSTERS, PODS_EACH = 50, 20
IDLE_S = 3600.0


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    looks, cpu_s, busy_looks, policy = measure()
    each = IDLE_S / policy.idle_s
    print(f"handoff: {CLUSTERS * PODS_EACH:,} TiKV pods in {CLUSTERS} clusters, {IDLE_S / 3600:.0f} h of virtual time")
    print(f"{'':44}{'measured':>12}{'target':>12}")
    rows = [
        ("CPU while nothing is asked", f"{cpu_s / IDLE_S:.3%} of a core", "< 1 %"),
        (f"looks at PD, per cluster and {policy.idle_s:.0f} s", f"{max(looks.values()) / each:.2f}", "≤ 1"),
        ("looks at PD, all clusters, per second", f"{sum(looks.values()) / IDLE_S:.2f}", ""),
        (f"looks per {policy.recheck_s:.0f} s, 3 pods of a cluster asked", f"{busy_looks:.2f}", "≤ 1"),
    ]
    for what, measured, target in rows:
        print(f"  {what:42}{measured:>16}{target:>12}")


def measure():
    from mooring.capabilities.handoff import Handoff, HandoffPolicy
    from mooring.clients.wire.kube import project
    from mooring.core.engine.engine import Engine
    from mooring.core.engine.events import Features, LeaseChanged
    from mooring.core.model.cluster import Key
    from mooring.core.model.events import Listed, PdSeen, Seen
    from mooring.core.model.instructions import ReadPd
    from mooring.core.model.kinds import Kind
    from mooring.core.queue import Queue, live_settings
    from mooring.core.world.world import World
    from mooring.process.replica import KINDS

    policy = HandoffPolicy()
    engine = Engine(World(), Queue(live_settings()), [Handoff(policy)])
    namespaces = [f"tidb-{i}" for i in range(CLUSTERS)]
    start = time.time()
    looks: dict[Key, int] = {}

    def drive(until: float, now: float, *first) -> float:
        """Events by hand: each look at PD is answered at once."""
        asked = deque([*first, *engine.work(now)])
        while True:
            while asked:
                one = asked.popleft()
                if isinstance(one, ReadPd):
                    looks[one.cluster] = looks.get(one.cluster, 0) + 1
                    asked.extend(engine.handle(PdSeen(one.cluster, pd_view(PODS_EACH), now), now))
            due = engine.next_wakeup()
            if due is None or due > until:
                return until
            now = max(now, due)
            asked.extend(engine.work(now))

    pods = [project(Kind.POD, tikv_pod(ns, i)) for ns in namespaces for i in range(PODS_EACH)]
    clusters = [project(Kind.TIDB_CLUSTER, tidb_cluster(ns)) for ns in namespaces]
    listed = {Kind.POD: tuple(pods), Kind.TIDB_CLUSTER: tuple(clusters)}
    for kind in KINDS:
        engine.handle(Listed(kind, listed.get(kind, ())), start)
    asked = []
    for event in (Features(frozenset({"handoff"})), LeaseChanged(leading=True)):
        asked += engine.handle(event, start)
    now = drive(start + 120, start, *asked)
    looks.clear()
    cpu = time.process_time()
    now = drive(now + IDLE_S, now)
    spent, idle = time.process_time() - cpu, dict(looks)
    looks.clear()
    asked = []
    for i in range(3):
        annotated = project(Kind.POD, tikv_pod("tidb-0", i, {"tidb.pingcap.com/restart": ""}, version=2))
        asked += engine.handle(Seen(Kind.POD, annotated), now)
    drive(now + 600, now, *asked)
    return idle, spent, looks[Key("tidb-0", "demo")] / (600 / policy.recheck_s), policy


if __name__ == "__main__":
    main()
