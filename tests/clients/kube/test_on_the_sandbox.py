"""The same informer and the same elector on the sandbox's API and virtual time, with everything going wrong at once."""

import asyncio
import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.clients.kube import Informer
from mooring.clients.ports import PortError
from mooring.core.model.events import Gone, Listed, Seen
from mooring.core.model.kinds import Kind
from mooring.process.lease.elector import Elector
from mooring_lab.cluster.apiserver.api import SandboxKubeApi
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline, TimelineClock, run_virtual
from mooring_lab.cluster.randomness import SeededRandomness

NAMES = st.sampled_from("abcdef")
DEEDS = st.one_of(
    st.tuples(st.just("make"), NAMES),
    st.tuples(st.just("change"), NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 30.0, 700.0])),
    st.tuples(st.just("dead"), st.sampled_from([0.5, 5.0, 60.0])),
    st.tuples(st.just("cut"), st.none()),
    st.tuples(st.just("compact"), st.none()),
)


def sandbox(seed: int) -> tuple[SandboxKubeApi, TimelineClock]:
    store = ObjectStore(Timeline(), seed=seed)
    store.create(Kind.NAMESPACE, {"metadata": {"name": "n"}})
    return SandboxKubeApi(store, seed=seed), TimelineClock(store.timeline)


async def do(api: SandboxKubeApi, clock: TimelineClock, deed: str, what) -> None:
    meta = {"namespace": "n", "name": what}
    match deed:
        case "make":
            await api.create(Kind.CONFIG_MAP, {"metadata": meta})
        case "change":
            await api.patch(Kind.CONFIG_MAP, "n", what, {"data": {"at": str(clock.monotonic())}})
        case "delete":
            await api.delete(Kind.CONFIG_MAP, "n", what)
        case "wait":
            await clock.sleep(what)
        case "dead":
            api.faults.dead_for(what)
        case "cut":
            api.faults.cut_watches()
        case "compact":
            api.faults.compact()


class Told:
    """What a world would know that only listens."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def __call__(self, event) -> None:
        match event:
            case Listed():
                self.known = {o.name: o.resource_version for o in event.objects}
            case Seen():
                self.known[event.object.name] = event.object.resource_version
            case Gone():
                del self.known[event.key.name]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1000), deeds=st.lists(DEEDS, max_size=25))
def test_whatever_happens_in_the_end_the_truth_is_known(seed, deeds):
    """Dead servers, cut streams, forgotten history, in any order: nothing is missed, nothing is made up."""
    api, clock = sandbox(seed)
    ours = api.as_client("mooring")

    async def main():
        told = Told()
        informer = Informer(ours, Kind.CONFIG_MAP, told, clock, SeededRandomness(seed))
        task = asyncio.create_task(informer.run())
        for deed, what in deeds:
            # Not there, there already, or nobody answers: as in life.
            with contextlib.suppress(PortError):
                await do(api, clock, deed, what)
        await clock.sleep(120)  # the longest death, the longest wait, and a list
        assert not task.done()
        assert informer.synced
        page = await api.list(Kind.CONFIG_MAP)
        assert told.known == {o.name: o.resource_version for o in page.items}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(main, api.store.timeline)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    faults=st.lists(
        st.tuples(st.sampled_from([1.0, 4.0, 9.0, 20.0]), st.sampled_from(["dead", "slow", "restart"])), max_size=8
    ),
)
def test_electors_never_overlap_and_one_always_comes_back(seed, faults):
    """Three replicas on a server that dies, crawls and comes back: at most one may write, and in the end one does."""
    api, clock = sandbox(seed)

    async def main():
        def start(name):
            elector = Elector(
                api.as_client(name), clock, SeededRandomness(name), namespace="n", name="mooring", identity=name
            )
            return elector, asyncio.create_task(elector.run())

        replicas = [start(f"r{n}") for n in range(3)]
        started = len(replicas)

        async def for_a_while(seconds):
            until = clock.monotonic() + seconds
            while clock.monotonic() < until:
                assert sum(e.may_write() for e, _ in replicas) <= 1
                await clock.sleep(0.1)

        await for_a_while(15)
        for seconds, what in faults:
            if what == "dead":
                api.faults.dead_for(seconds)
            elif what == "slow":
                api.faults.slow_for(seconds)
            else:
                leader = next((r for r in replicas if r[0].leading), replicas[0])
                leader[1].cancel()
                await asyncio.gather(leader[1], return_exceptions=True)
                replicas.remove(leader)
                replicas.append(start(f"r{started}"))
                started += 1
            await for_a_while(seconds)
        await for_a_while(30)
        assert sum(e.may_write() for e, _ in replicas) == 1
        for _, task in replicas:
            task.cancel()
        await asyncio.gather(*(t for _, t in replicas), return_exceptions=True)

    run_virtual(main, api.store.timeline)
