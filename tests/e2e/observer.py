"""The one judge (`mooring_lab.judge`), watching a real control plane with a client and a watch of its own.

    with Observer(lab, leaders=…):
        …the scenario…

It follows nodes, pods and workloads in a thread of its own; what is broken fails the test at the end of the `with`. Pods
come in one watch, in the order in which things happened, so what it sees when a pod goes is how things were at that
moment.
"""

import asyncio
import threading
import time
from collections import Counter

from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.clients.kube import HttpKubeApi, load
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.clock import Timeline
from mooring_lab.demo.onlab.mirror import Mirror
from mooring_lab.judge.observer import KINDS, ActObserver


class Observer:
    """`leaders(pod)`: how many region leaders its store has, by TiKV's truth and not by PD's."""

    def __init__(self, lab, *, leaders=lambda pod: 0, retire_timeout_s=FleetPolicy().retire_timeout_s):
        self._lab, self._leaders, self._retire_timeout_s = lab, leaders, retire_timeout_s
        #: What was found, and what was seen.
        self.broken, self.seen = [], Counter()
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
        assert not self.broken, "\n".join(finding.words for finding in self.broken)

    async def _run(self):
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        connection = load(self._lab.kubeconfig)
        async with HttpKubeApi(connection) as api:
            store = Mirror(Timeline(time.time()), connection, api)
            judge = ActObserver(
                store,
                now=time.monotonic,
                epoch=time.time,
                leaders=lambda _, __, pod: self._leaders(pod),
                retire_timeout_s=self._retire_timeout_s,
            ).begin()
            self.broken, self.seen = judge.findings, judge.seen
            store.follow((*KINDS, Kind.TIDB_CLUSTER))
            await store.synced(KINDS)
            self._ready.set()
            await self._over.wait()
            await store.close()
        # A connection that was still being made ends a moment after it was given up; the loop must not end before.
        await asyncio.sleep(0.2)
