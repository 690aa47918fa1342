"""The election loop on virtual time: two processes, one lease, and a network that fails on demand."""

import asyncio
import copy

import pytest

from mooring.clients.kube.fence import NotLeaderError, fenced
from mooring.clients.ports import AlreadyExistsError, ConflictError, NotFoundError, RefusedError
from mooring.core.model.kinds import Kind
from mooring.process.lease.elector import Elector


class Server:
    """One Lease with compare-and-swap."""

    def __init__(self):
        self.lease = None
        self.version = 0

    def put(self, obj):
        self.version += 1
        self.lease = copy.deepcopy(obj)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.lease)


class Line:
    """One process's connection to the server: 20 ms each way, silent when cut, deaf when only answers are lost."""

    def __init__(self, server, latency_s=0.02):
        self.server, self.latency_s = server, latency_s
        self.cut = self.deaf = False
        self.writes = 0

    async def _way(self, blocked):
        await asyncio.sleep(3000 if blocked else self.latency_s)

    async def get(self, kind, namespace, name):
        await self._way(self.cut)
        if self.server.lease is None:
            raise NotFoundError(name)
        answer = copy.deepcopy(self.server.lease)
        await self._way(self.cut)
        return answer

    async def create(self, kind, obj, *, dry_run=False):
        await self._way(self.cut)
        if self.server.lease is not None:
            raise AlreadyExistsError("lease")
        return await self._written(obj)

    async def replace(self, kind, obj, *, subresource=""):
        await self._way(self.cut)
        if not obj["metadata"].get("resourceVersion"):
            raise RefusedError("metadata.resourceVersion: must be specified for an update", 422)
        if self.server.lease["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise ConflictError("lease")
        return await self._written(obj)

    async def _written(self, obj):
        self.writes += 1
        answer = self.server.put(obj)
        await self._way(self.cut or self.deaf)
        return answer


class Process:
    def __init__(self, virtual, loop, server, name, *, offset=0.0, rate=1.0):
        self.name, self.loop = name, loop
        self.line = Line(server)
        self.log = []
        self.clock = virtual.clock(loop, offset, rate)
        self.elector = Elector(
            self.line,
            self.clock,
            virtual.randomness,
            namespace="mooring",
            name="mooring",
            identity=name,
            on_started=lambda: self.log.append(("started", loop.time())),
            on_stopped=self._stopped,
        )
        self.task = asyncio.create_task(self.elector.run())

    async def _stopped(self):
        self.log.append(("stopped", self.loop.time()))

    async def stop(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def kill(self):
        """As kill -9: nothing is given back."""
        self.line.cut = True


async def until(loop, true, limit_s=60.0):
    begin = loop.time()
    while not true():
        assert loop.time() - begin < limit_s, "it did not happen"
        await asyncio.sleep(0.01)
    return loop.time() - begin


def test_one_of_three_leads_and_keeps_leading(virtual):
    """A minute in peace: one leader, one start, no stop."""

    async def main(loop):
        server = Server()
        three = [Process(virtual, loop, server, f"p{n}", offset=n * 1e5) for n in range(3)]
        await asyncio.sleep(60)
        assert sorted(len(p.log) for p in three) == [0, 0, 1]
        assert sum(p.elector.may_write() for p in three) == 1
        assert server.lease["spec"]["leaseTransitions"] == 0
        assert {p.elector.holder for p in three} == {server.lease["spec"]["holderIdentity"]}
        for p in three:
            await p.stop()

    virtual(main)


@pytest.mark.parametrize("alive_s", [5.0, 5.7, 6.4, 7.1])
@pytest.mark.parametrize("rate", [0.97, 1.03])
def test_the_next_leads_within_15_s_of_a_kill(virtual, alive_s, rate):
    """kill -9: the lease runs out on the follower's own clock, and it takes over in less than 15 s."""

    async def main(loop):
        server = Server()
        first = Process(virtual, loop, server, "first")
        await asyncio.sleep(1)
        second = Process(virtual, loop, server, "second", offset=-5e5, rate=rate)
        await asyncio.sleep(alive_s)
        first.kill()
        took = await until(loop, lambda: second.elector.leading)
        assert not first.elector.may_write()
        assert 7 < took < 15
        assert server.lease["spec"]["leaseTransitions"] == 1
        await asyncio.gather(first.stop(), second.stop())

    virtual(main)


@pytest.mark.parametrize("alive_s", [5.0, 5.7, 6.4, 7.02])
def test_the_next_leads_within_3_s_of_a_clean_stop(virtual, alive_s):
    """The lease is given back once everything has stopped, and taken within a retry."""

    async def main(loop):
        server = Server()
        first = Process(virtual, loop, server, "first")
        await asyncio.sleep(1)
        second = Process(virtual, loop, server, "second")
        await asyncio.sleep(alive_s)
        await first.stop()
        assert [what for what, _ in first.log] == ["started", "stopped"]
        assert server.lease["spec"]["holderIdentity"] == ""
        assert await until(loop, lambda: second.elector.leading) < 3
        await second.stop()

    virtual(main)


def test_one_that_has_not_seen_the_cluster_leaves_the_lease_to_others(virtual):
    """Issue 20: the leader stops while a replica has just been started; the lease goes to the one that can answer at once,
    however late that looks, and the fresh one takes it as soon as it could lead and nobody does."""

    async def main(loop):
        server = Server()
        old, other = (Process(virtual, loop, server, name) for name in ("old", "other"))
        other.elector.prepared = False
        await until(loop, lambda: old.elector.leading)
        fresh = Process(virtual, loop, server, "fresh")
        fresh.elector.prepared = False
        await old.stop()
        await asyncio.sleep(30)
        assert (server.lease["spec"]["holderIdentity"], other.line.writes, fresh.line.writes) == ("", 0, 0)
        other.elector.prepare()
        assert await until(loop, lambda: other.elector.leading) < 0.5
        await other.stop()
        fresh.elector.prepare()
        assert await until(loop, lambda: fresh.elector.leading) < 0.5
        await fresh.stop()

    virtual(main)


def test_stopped_in_the_middle_of_a_renewal_the_lease_is_given_back_all_the_same(virtual):
    """The renewal was accepted and its answer not waited for: the lease is read again and given back."""

    async def main(loop):
        server = Server()
        only = Process(virtual, loop, server, "only")
        await asyncio.sleep(1)
        only.line.deaf = True
        writes = only.line.writes
        await until(loop, lambda: only.line.writes > writes)
        only.line.deaf = False
        await only.stop()
        assert server.lease["spec"]["holderIdentity"] == ""

    virtual(main)


def test_stopped_right_after_a_failed_renewal_the_lease_is_given_back(virtual):
    """The leader no longer knows what the lease looks like, so it reads it before it gives it back."""

    async def main(loop):
        server = Server()
        only = Process(virtual, loop, server, "only")
        await asyncio.sleep(1)
        only.line.cut = True
        await until(loop, lambda: only.elector.leading and only.elector._object is None)
        only.line.cut = False
        await only.stop()
        assert server.lease["spec"]["holderIdentity"] == ""

    virtual(main)


def test_a_leader_cut_off_stops_before_the_next_one_starts(virtual):
    """The network fails: the old leader's fence is shut, and it says so, before the lease runs out for the others."""

    async def main(loop):
        server = Server()
        first = Process(virtual, loop, server, "first", rate=0.9)
        await asyncio.sleep(1)
        second = Process(virtual, loop, server, "second", rate=1.1)
        await asyncio.sleep(6)
        first.line.cut = True
        await until(loop, lambda: second.elector.leading)
        assert first.log[-1][0] == "stopped"
        assert first.log[-1][1] < second.log[0][1]
        first.line.cut = False
        await asyncio.sleep(20)
        assert [what for what, _ in first.log] == ["started", "stopped"]
        assert second.elector.may_write()
        await asyncio.gather(first.stop(), second.stop())

    virtual(main)


def test_a_lost_answer_or_two_do_not_cost_the_lead(virtual):
    """Four seconds in which answers are lost: the leader looks, renews and stays."""

    async def main(loop):
        server = Server()
        only = Process(virtual, loop, server, "only")
        await asyncio.sleep(5)
        only.line.deaf = True
        await asyncio.sleep(4)
        only.line.deaf = False
        await asyncio.sleep(20)
        assert only.log == [("started", only.log[0][1])]
        assert only.elector.may_write()
        await only.stop()

    virtual(main)


def test_what_others_wrote_into_the_lease_stays(virtual):
    """Labels, annotations and fields that we do not know survive our renewals."""

    async def main(loop):
        server = Server()
        server.put({"metadata": {"labels": {"team": "a"}}, "spec": {"holderIdentity": "", "preferredHolder": "x"}})
        only = Process(virtual, loop, server, "only")
        await asyncio.sleep(10)
        assert only.elector.leading
        assert server.lease["metadata"]["labels"] == {"team": "a"}
        assert server.lease["spec"]["preferredHolder"] == "x"
        assert server.lease["spec"]["leaseDurationSeconds"] == 10
        await only.stop()

    virtual(main)


async def test_nothing_is_written_without_the_lease():
    """The fence refuses every write before it is sent; reads pass."""
    server = Server()
    server.put({"metadata": {}, "spec": {}})
    leads = False
    api = fenced(Line(server, latency_s=0), lambda: leads)
    assert await api.get(Kind.LEASE, "a", "b")
    writes = [
        lambda: api.create(Kind.POD, {}),
        lambda: api.replace(Kind.POD, {}),
        lambda: api.patch(Kind.POD, "a", "b", {}),
        lambda: api.delete(Kind.POD, "a", "b"),
        lambda: api.evict("a", "b"),
        lambda: api.bind("a", "b", "n"),
    ]
    for write in writes:
        with pytest.raises(NotLeaderError, match="not sent"):
            await write()
    leads = True
    await api.replace(Kind.LEASE, {"metadata": {"resourceVersion": "1"}})
    assert server.version == 2
