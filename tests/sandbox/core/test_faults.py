"""Faults: each does exactly what its name says, and the seed alone decides."""

import pytest

from mooring.clients.ports import ConflictError, NotFoundError, ThrottledError, UnansweredError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.api import SandboxKubeApi
from mooring_lab.cluster.apiserver.faults import Fault, FaultRates
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline, run_virtual

MAP = {"metadata": {"name": "x", "namespace": "default"}, "data": {"a": "1"}}


def test_a_lost_answer_happened_and_a_lost_request_did_not(api, play):
    """`Unanswered` says nothing about what happened: only looking tells."""

    async def main():
        api.faults.arm(Fault.LOST_REQUEST, verb="create")
        with pytest.raises(UnansweredError):
            await api.create(Kind.CONFIG_MAP, MAP)
        with pytest.raises(NotFoundError):
            await api.get(Kind.CONFIG_MAP, "default", "x")
        assert api.writes == []
        api.faults.arm(Fault.LOST_ANSWER, verb="create")
        with pytest.raises(UnansweredError):
            await api.create(Kind.CONFIG_MAP, MAP)
        assert (await api.get(Kind.CONFIG_MAP, "default", "x"))["data"] == {"a": "1"}
        assert [(w.verb, w.name, w.by) for w in api.writes] == [("create", "x", "mooring")]

    play(main)


def test_a_conflict_changes_nothing(api, play):
    """An armed conflict meets the verb and kind it was armed for, once, and leaves the object alone."""

    async def main():
        await api.create(Kind.CONFIG_MAP, MAP)
        api.faults.arm(Fault.CONFLICT, verb="patch", kind=Kind.CONFIG_MAP)
        with pytest.raises(ConflictError):
            await api.patch(Kind.CONFIG_MAP, "default", "x", {"data": {"a": "2"}})
        assert (await api.get(Kind.CONFIG_MAP, "default", "x"))["data"] == {"a": "1"}
        await api.patch(Kind.CONFIG_MAP, "default", "x", {"data": {"a": "2"}})
        api.faults.arm(Fault.THROTTLED)
        with pytest.raises(ThrottledError):
            await api.delete(Kind.CONFIG_MAP, "default", "x")

    play(main)


def test_a_dead_server_answers_nobody_until_it_is_back(api, play):
    """Calls fail unanswered and open watches end; afterwards all is as it was."""

    async def main():
        await api.create(Kind.CONFIG_MAP, MAP)
        stream = api.watch(Kind.CONFIG_MAP, initial_events=True)
        async for event in stream:
            if event.initial_end:
                api.faults.dead_for(30)
        with pytest.raises(UnansweredError):
            await api.get(Kind.CONFIG_MAP, "default", "x")
        api.store.timeline.run_for(30)
        assert await api.get(Kind.CONFIG_MAP, "default", "x")

    play(main)


def test_slow_calls_take_their_time(api, play):
    """A slow server costs virtual seconds, not truth."""

    async def main():
        api.faults.slow_for(60, each_s=5)
        before = api.store.timeline.monotonic()
        await api.create(Kind.CONFIG_MAP, MAP)
        assert api.store.timeline.monotonic() - before >= 5

    play(main)


@pytest.mark.parametrize("as_status", [False, True])
def test_a_compacted_watch_gets_410(api, play, as_status):
    """After a compaction the stream ends, and resuming is 410, in the stream or as the answer (M7)."""
    api.faults.expired_as_status = as_status

    async def main():
        await api.create(Kind.POD, pod("a"))
        seen = []
        async for event in api.watch(Kind.POD, initial_events=True):
            seen.append(event.type)
            if event.initial_end:
                position = event.resource_version
                await api.delete(Kind.POD, "default", "a")
                api.faults.compact(Kind.POD)
        assert seen == ["ADDED", "BOOKMARK"]
        try:
            codes = [event.code async for event in api.watch(Kind.POD, resource_version=position)]
        except Exception as error:
            codes = [type(error).__name__]
        assert codes == (["ExpiredError"] if as_status else [410])
        page = await api.list(Kind.POD)
        assert page.items == ()

    play(main)


def test_a_cut_watch_resumes_without_loss(api, play):
    """A cut loses nothing: from the last version seen, the rest comes in order."""

    async def main():
        start = (await api.list(Kind.POD)).resource_version
        await api.create(Kind.POD, pod("a"))
        seen = []
        async for event in api.watch(Kind.POD, resource_version=start):
            seen.append(event.object.name)
            start = event.object.resource_version
            await api.create(Kind.POD, pod("b"))
            api.faults.cut_watches()
        async for event in api.watch(Kind.POD, resource_version=start):
            seen.append(event.object.name)
            break
        assert seen == ["a", "b"]

    play(main)


@pytest.mark.parametrize("reading_s", [0.5, 90.0], ids=["later events", "bookmark"])
def test_a_slow_consumer_of_a_cut_watch_sees_its_end(api, play, reading_s):
    """M7: what a cut dropped is never followed by later events or a bookmark: the stream ends, and resuming gives all."""

    async def main():
        start = (await api.list(Kind.POD)).resource_version
        await api.create(Kind.POD, pod("a"))
        await api.create(Kind.POD, pod("dropped"))
        seen = []
        async for event in api.watch(Kind.POD, resource_version=start):
            seen.append(event.object.name if event.object else event.type)
            start = event.resource_version
            if seen == ["a"]:
                api.faults.cut_watches()
                await api.create(Kind.POD, pod("later"))
            api.store.timeline.run_for(reading_s)
        assert seen == ["a"]
        async for event in api.watch(Kind.POD, resource_version=start):
            seen.append(event.object.name)
            if len(seen) == 3:
                break
        assert seen == ["a", "dropped", "later"]

    play(main)


def test_a_lagging_watch_gives_every_event_late_and_in_order(api, play):
    """All events come the lag later, each by itself; a bookmark never stands for one that is still on its way."""
    api.watch_lag_s[Kind.POD] = 30.0
    timeline = api.store.timeline

    async def main():
        start, zero = (await api.list(Kind.POD)).resource_version, timeline.monotonic()
        for at, name in enumerate("abc"):
            timeline.after(at + 25.0, lambda name=name: api.store.create(Kind.POD, pod(name)))
        watch = api.watch(Kind.POD, resource_version=start, timeout_s=61)
        seen = [(timeline.monotonic() - zero, e.object.name if e.object else e.type) async for e in watch]
        assert seen == [(55.0, "a"), (56.0, "b"), (57.0, "c"), (60.0, "BOOKMARK")]

    play(main)


def test_an_idle_watch_gets_bookmarks(api, play):
    """Bookmarks carry a version that moves on with other kinds' writes too."""

    async def main():
        start = (await api.list(Kind.POD)).resource_version
        await api.create(Kind.CONFIG_MAP, MAP)
        events = [e async for e in api.watch(Kind.POD, resource_version=start, timeout_s=130)]
        assert [e.type for e in events] == ["BOOKMARK", "BOOKMARK"]
        assert int(events[-1].resource_version) > int(start)

    play(main)


def test_hooks_stand_right_before_and_right_after_a_write(api, play):
    """Whoever raises before finds nothing written, whoever raises after finds it written: the kill harness's two points."""

    class Killed(BaseException):
        pass

    def kill(write):
        raise Killed

    async def main():
        api.before_write(kill)
        with pytest.raises(Killed):
            await api.create(Kind.CONFIG_MAP, MAP)
        assert api.store.find(Kind.CONFIG_MAP, "default", "x") is None
        api.server._before.clear()
        api.server.after_write(kill)
        with pytest.raises(Killed):
            await api.create(Kind.CONFIG_MAP, MAP)
        assert api.store.find(Kind.CONFIG_MAP, "default", "x") is not None

    play(main)


def outcome(seed: int) -> list[str]:
    """What forty writes meet under one seed."""
    api = SandboxKubeApi(ObjectStore(Timeline(), seed), seed=seed)
    api.faults.rates = FaultRates(lost_request=0.1, lost_answer=0.1, conflict=0.1, throttled=0.1, slow=0.2)

    async def main():
        met = []
        api.store.create(Kind.CONFIG_MAP, MAP)
        for i in range(40):
            try:
                await api.patch(Kind.CONFIG_MAP, "default", "x", {"data": {"a": str(i)}})
                met.append("ok")
            except Exception as error:
                met.append(type(error).__name__)
        return [*met, *(f"{at:.3f} {words}" for at, words in api.faults.log)]

    return run_virtual(main, api.store.timeline)


def test_the_seed_alone_decides():
    """Same seed, same faults; another seed, others; and with these rates every kind occurs (O5)."""
    first = outcome(3)
    assert first == outcome(3)
    assert first != outcome(4)
    assert {"ok", "UnansweredError", "ConflictError", "ThrottledError"} <= set(first)


def test_a_plan_of_faults_is_drawn_from_the_seed(api):
    """A plan repeats with its seed and each appointment is kept."""
    other = SandboxKubeApi(ObjectStore(Timeline(), seed=7), seed=7)
    assert api.faults.schedule(600, 20) == other.faults.schedule(600, 20)
    api.store.timeline.run_for(600)
    assert len(api.faults.log) == 20


def pod(name: str) -> dict:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
