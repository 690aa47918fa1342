"""A PD that says very much, and a tenant with very many of them: what is kept of it has bounds."""

import asyncio

import msgspec
import pytest

from mooring.clients.kube import HttpKubeApi
from mooring.clients.kube.config import Connection
from mooring.clients.pd import answers
from mooring.clients.pd.room import FORGET_S, MAX_KEPT_BYTES, MIB, AnswerRoom
from mooring.clients.ports import UnansweredError
from mooring.core.model.cluster import Key
from mooring.core.model.events import Gone, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import PD_ENDPOINTS
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.world import World
from mooring.process.assemble import make_pd
from mooring.process.clock import SystemRandomness, WallClock
from mooring.process.pd_directory import GONE, PdDirectory
from mooring.process.settings.config import Config
from tests.process.test_pds import Driver
from tests.security.test_pd import Server

STORE = {"store": {"id": 1, "address": "demo-tikv-0.demo-tikv-peer.tidb.svc:20160"}}
LABEL = {"key": "zone", "value": "z"}


@pytest.mark.parametrize(
    ("read", "answer"),
    [
        (answers.stores, {"stores": [STORE] * 10_001}),
        (answers.stores, {"stores": [{"store": {"id": 1, "labels": [LABEL] * 101}}]}),
        (answers.members, {"members": [{"name": "a"}] * 101}),
        (answers.members, {"members": [{"name": "a", "client_urls": ["http://a:1"] * 101}]}),
        (lambda body: answers.names(body, "schedulers"), ["a"] * 50_001),
        (answers.operators, ["x (kind:leader, region:1(1, 1))"] * 50_001),
        (lambda body: answers.pauses(body, ""), ["a"] * 10_001),
        (answers.evicting_by_list, {"store-id-ranges": {str(n): None for n in range(10_001)}}),
    ],
)
def test_more_than_any_pd_has_is_no_answer(read, answer):
    """16 MiB of stores kept 115 MB, and took most of a second: it is refused before anything is made of it."""
    with pytest.raises(UnansweredError, match="is the most"):
        read(msgspec.json.encode(answer))


def test_what_large_clusters_say_passes():
    """Two thousand stores with a dozen labels, and twenty operators on each."""
    stores = [{"store": {"id": n, "labels": [LABEL] * 12}} for n in range(2000)]
    assert len(answers.stores(msgspec.json.encode({"stores": stores}))) == 2000
    line = "transfer-leader {transfer leader: store 1 to 2} (kind:leader, region:7(1, 1), steps:[0:{x}])"
    assert len(answers.operators(msgspec.json.encode([line] * 40_000))) == 40_000


def test_all_answers_together_have_one_room():
    """Twenty clusters of one tenant, each with answers as large as they may be: what is kept stays bounded, and who
    takes no more than its share is never refused."""
    room = AnswerRoom()
    kept = [room.take(Key("evil", f"c{n}"), path, 4 * MIB, 0.0) for n in range(20) for path in ("/stores", "/members")]
    assert sum(kept) == MAX_KEPT_BYTES // (4 * MIB)
    assert room.take(Key("good", "demo"), "/stores", 4 * MIB, 0.0)
    assert not room.take(Key("evil", "c0"), "/stores", 5 * MIB, 0.0), "no more than the one before"
    assert room.take(Key("evil", "c0"), "/stores", 3 * MIB, 0.0)
    assert room.take(Key("evil", "new"), "/stores", MIB // 64, 0.0), "what every small cluster says is not counted"
    assert room.take(Key("evil", "new"), "/stores", 4 * MIB, FORGET_S), "those that were long not asked are forgotten"


async def test_a_look_at_a_pd_without_room_for_it_is_no_answer():
    """Through the client: `why` says that it is PD who says too much."""
    body = msgspec.json.encode({"stores": [STORE] * 9_999, "x": " " * (3 * MIB)})
    async with Server(body) as pd:
        api = HttpKubeApi(Connection("http://127.0.0.1:9"))
        make = make_pd(WallClock(), SystemRandomness(), Config(), api)
        drivers = [make(Key("evil", f"c{n}"), (pd.url,)) for n in range(12)]
        said = await asyncio.gather(*(driver.stores() for driver in drivers), return_exceptions=True)
        refused = [str(error) for error in said if isinstance(error, UnansweredError)]
        assert 0 < len(refused) < 12 and all("more than there is room for" in words for words in refused)
        for driver in drivers:
            await driver.close()


async def test_clients_do_not_pile_up():
    """A tenant who changes the annotation, or makes clusters and deletes them, again and again."""
    world, made = World(), []
    directory = PdDirectory(world, lambda _, urls: made.append(Driver(urls)) or made[-1], hosts=["*:2379"])
    for number in range(50):
        tc = TidbCluster("evil", "one", "u", str(number), annotations={PD_ENDPOINTS: f"http://a{number}:2379"})
        world.apply(Seen(Kind.TIDB_CLUSTER, tc))
        directory.pd(tc.key)
    for number in range(50):
        tc = TidbCluster("evil", f"c{number}", f"u{number}", "1")
        world.apply(Seen(Kind.TIDB_CLUSTER, tc))
        directory.pd(tc.key)
        world.apply(Gone(Kind.TIDB_CLUSTER, tc.key, tc.uid))
    await asyncio.sleep(0)
    assert sum(not driver.closed for driver in made) <= GONE + 2
    assert not directory.pd(Key("evil", "c49")).closed, "the latest may still have something to end"
    await directory.close()
    assert all(driver.closed for driver in made)
