"""The simulation's promises, watched on a real control plane: by an observer with a client and a watch of its own.

    with Observer(lab, leaders=…):
        …the scenario…

It follows nodes, pods and workloads in a thread of its own. A pod that goes with our mark on it went by our act: is it
a TiKV pod with leaders (E6), is another member away (E7), is another replica of its workload away (M5)? A node that is
cut off: is it empty (O2)? What is broken fails the test at the end of the `with`. Pods come in one watch, in the order
in which things happened, so what the observer sees when a pod goes is how things were at that moment.
"""

import asyncio
import math
import threading
import time
from collections import Counter

from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.clients.kube import HttpKubeApi, load
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import GAVE_UP, HANDOFF, LEAVING, read_marks
from mooring.demo.onlab.mirror import Mirror
from mooring.sandbox.clock import Timeline
from mooring.sandbox.controllers import podstate
from mooring.sandbox.reading import Reading
from mooring.sim.whole.invariants import OVERLAP_S
from mooring.sim.whole.promises import SLACK_S, Promises

INTERRUPT_AT = "vacant.io/interrupt-at"
KINDS = (Kind.NODE, Kind.DEPLOYMENT, Kind.REPLICA_SET, Kind.STATEFUL_SET, Kind.LEASE, Kind.POD)


class Observer(Reading):
    """`leaders(pod)`: how many region leaders its store has, by TiKV's truth and not by PD's."""

    def __init__(self, lab, *, leaders=lambda pod: 0, retire_timeout_s=FleetPolicy().retire_timeout_s):
        self._lab, self._leaders, self.retire_timeout_s = lab, leaders, retire_timeout_s
        self.broken, self.seen = [], Counter()
        self.promises = Promises(self)
        self._leader_changed = -math.inf
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(180), "the observer sees nothing"
        return self

    def __exit__(self, kind, *_):
        self.stop()
        if kind is None:
            self.judge()

    def stop(self):
        """What is cleaned up from now on is nobody's act."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(30)

    def judge(self):
        assert not self.broken, "\n".join(self.broken)

    async def _run(self):
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        connection = load(self._lab.kubeconfig)
        async with HttpKubeApi(connection) as api:
            self.store = Mirror(Timeline(time.time()), connection, api)
            self.store.subscribe(Kind.POD, self._on_pod)
            self.store.subscribe(Kind.NODE, self.promises.on_node)
            self.store.subscribe(Kind.LEASE, self._on_lease)
            self.store.follow((*KINDS, Kind.TIDB_CLUSTER))
            await self.store.synced(KINDS)
            self._ready.set()
            await self._over.wait()
            await self.store.close()
        # A connection that was still being made ends a moment after it was given up; the loop must not end before.
        await asyncio.sleep(0.2)

    def _on_pod(self, event, old, new):
        # The last event of a pod without a grace period is its first word of going.
        going = event == "DELETED" or (new is not None and podstate.terminating(new))
        if going and old is not None and podstate.active(old) and self._by_us(new if new is not None else old):
            self.seen["pod-went-by-us"] += 1
            self.promises.pod_goes(f"{old['metadata']['name']} goes", "mooring", old)
        self.promises.on_pod(event, old, new)

    def _by_us(self, pod):
        meta = pod["metadata"]
        if LEAVING in podstate.annotations_of(pod):
            return True
        texts = [podstate.annotations_of(tc).get(HANDOFF, "") for tc in self.store.list(Kind.TIDB_CLUSTER)]
        marks = [mark for text in texts for mark in (read_marks(text) or {}).values()]
        return any(mark.pod_uid == meta["uid"] and mark.step != GAVE_UP for mark in marks)

    def _on_lease(self, _, old, new):
        if (
            old is not None
            and new is not None
            and old["spec"].get("holderIdentity") != new["spec"].get("holderIdentity")
        ):
            self._leader_changed = self.now

    # ── What the promises ask (`Scene`) ───────────────────────────────────────────────────────────────────────────

    @property
    def now(self):
        return time.monotonic()

    def epoch(self):
        return time.time()

    def fail(self, promise, words):
        self.broken.append(f"{promise}: {words}")

    def hit(self, name):
        self.seen[name] += 1

    def leaders(self, namespace, cluster, pod):
        return self._leaders(pod)

    def noticed(self, node):
        found = self.store.find(Kind.NODE, "", node)
        return found is None or INTERRUPT_AT in podstate.annotations_of(found)

    def known(self, since):
        return self.now - since > SLACK_S

    def stale(self, by):
        return False

    def overlaps(self):
        return self.now - self._leader_changed < OVERLAP_S
