"""A PD that a tenant chose, or that answers with malice; and writes that reach no other cluster."""

import asyncio
import gzip
import time
import tracemalloc

import msgspec
import pytest
from aiohttp import web

from mooring.clients.pd import answers
from mooring.clients.pd.client import PdClient
from mooring.clients.ports import RefusedError, UnansweredError
from mooring.clients.registry.sabakan.client import Sabakan
from mooring.clients.texts import printable, without_credentials
from mooring.core.model.cluster import Key
from mooring.core.model.instructions import (
    AddEvictLeader,
    AddPdOperator,
    PausePdScheduler,
    RemoveEvictLeader,
    TransferPdLeader,
)
from mooring.core.model.marks import HANDOFF, PD_ENDPOINTS, Mark, write_marks
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import PdView, Store, TidbCluster
from mooring.core.world.outside import Outside
from mooring.process.act import Actor
from mooring.process.clock import WallClock
from mooring.process.pd_directory import endpoints, may_ask

OURS = Key("tidb", "demo")
MIB = 1 << 20


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest",
        "http://10.0.0.1:2379",
        "http://demo-pd.tidb.svc:2379/secret#",
        "http://demo-pd.tidb.svc:2379#",
        "http://demo-pd.tidb.svc:2379?x=",
        "http://user:pw@demo-pd.tidb.svc:2379",
        "http://demo-pd.tidb.svc:6443",
        "http://demo-pd.other.svc:2379",
        "http://other-pd.tidb.svc:2379",
        "http://demo-pd.tidb.svc.evil.example:2379",
        "http://demo-pd.tidb.svc@evil.example:2379",
        "http://demo-pd.tidb.svc\\@evil.example:2379",
        "file:///etc/passwd",
        "http://[::1",
        "http://\x1b[31m:2379",
        "demo-pd.tidb.svc:2379",
    ],
)
def test_the_annotation_names_only_the_clusters_own_service(url):
    """mooring.dev/pd-endpoints: a tenant writes it, so it sends us nowhere but to its own PD."""
    tc = TidbCluster("tidb", "demo", "u", "1", annotations={PD_ENDPOINTS: f"http://demo-pd.tidb.svc:2379,{url}"})
    with pytest.raises(RefusedError, match="pd-hosts"):
        endpoints(tc, {})


def test_the_own_service_its_members_and_what_an_administrator_allows_pass():
    """The cluster's Service in each spelling, its members behind it, and patterns of pd-hosts."""
    for host in ("demo-pd.tidb.svc", "demo-pd.tidb.svc.cluster.local", "demo-pd-0.demo-pd-peer.tidb.svc"):
        assert may_ask(f"http://{host}:2379", OURS)
    assert may_ask("http://pd.example.com:2379", OURS, ["*.example.com:2379"])
    assert not may_ask("http://pd.example.com:80", OURS, ["*.example.com:2379"])


class Server:
    """Answers everything with one response, and counts what reaches it."""

    def __init__(self, body: bytes = b"[]", status: int = 200, **headers: str) -> None:
        self.body, self.status = body, status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.asked: list[str] = []
        self.cookies: list[str] = []

    async def __aenter__(self) -> "Server":
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", self._answer)
        self.runner = web.AppRunner(app, access_log=None)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path}")
        self.cookies.append(request.headers.get("Cookie", ""))
        return web.Response(body=self.body, status=self.status, headers=self.headers)


def client(url: str, **how) -> PdClient:
    return PdClient([url], clock=WallClock(), attempts=1, **how)


async def test_redirects_are_not_followed():
    """A redirect would carry our POST to where the tenant likes."""
    async with Server() as elsewhere:
        async with Server(status=307, Location=f"{elsewhere.url}/steal") as pd:
            driver = client(pd.url)
            for call in (driver.operators(), driver.add_operator({"name": "x"}), driver.stores()):
                with pytest.raises(UnansweredError, match="redirect"):
                    await call
            await driver.close()
        assert elsewhere.asked == []


async def test_a_compressed_answer_is_not_unpacked():
    """71 MB of gzip would become 1.5 GB, and the next leader asks too."""
    bomb = gzip.compress(b"[" + b'"",' * (16 * MIB))
    async with Server(bomb, Content_Encoding="gzip") as pd:
        driver = client(pd.url)
        tracemalloc.start()
        try:
            with pytest.raises(UnansweredError, match="compressed"):
                await driver.operators()
            assert tracemalloc.get_traced_memory()[1] < 8 * MIB
        finally:
            tracemalloc.stop()
        await driver.close()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b" " * (5 * MIB), "more than 4 MiB"),
        (b'{"stores":[' + b"{}," * 1_300_000 + b"{}]}", "more values"),
        (b'["' + b'a","' * 4_000_000 + b'"]', "more"),
    ],
)
async def test_large_answers_are_given_up(body, said):
    """An answer has a limit in bytes and in values: what it becomes in memory is bounded."""
    async with Server(body) as pd:
        driver = client(pd.url)
        with pytest.raises(UnansweredError, match=said):
            await driver.stores()
        await driver.close()


async def test_a_member_is_not_asked_where_a_hostile_pd_says():
    """PD names its members' addresses: one outside the cluster is not asked."""
    async with Server() as elsewhere:
        member = {"name": "pd-0", "member_id": 1, "client_urls": [elsewhere.url]}
        body = msgspec.json.encode({"members": [member, {**member, "name": "pd-1"}], "leader": member})
        async with Server(body) as pd:
            driver = client(pd.url, may_ask=lambda url: may_ask(url, OURS))
            with pytest.raises(UnansweredError, match="outside its cluster"):
                await driver.observe()
            await driver.close()
        assert elsewhere.asked == []


async def test_cookies_are_not_kept():
    """A PD could have us keep, and send back, more of them with each answer."""
    async with Server(Set_Cookie="a=b; Path=/") as pd:
        driver = client(pd.url.replace("127.0.0.1", "localhost"))
        for _ in range(2):
            await driver.operators()
        assert [cookie for cookie in pd.cookies if cookie] == []
        await driver.close()


async def test_what_is_quoted_of_an_answer_is_short_and_printable():
    """An answer reaches `why`, logs and terminals: a short line that no terminal obeys."""
    async with Server(b"\x1b[2Jpwned\r\n" + b"x" * 1000, status=400) as pd:
        driver = client(pd.url)
        with pytest.raises(RefusedError) as error:
            await driver.stores()
        assert str(error.value).isprintable()
        assert len(str(error.value)) < 300
        await driver.close()


async def test_credentials_are_in_no_error():
    """A user and password in a URL are used, and never shown."""
    driver = client("http://me:hush@127.0.0.1:1")
    with pytest.raises(UnansweredError) as error:
        await driver.stores()
    await driver.close()
    assert "hush" not in str(error.value)
    sabakan = Sabakan("http://me:hush@127.0.0.1:1")
    with pytest.raises(UnansweredError) as error:
        await sabakan.machines()
    await sabakan.close()
    assert "hush" not in str(error.value)
    assert without_credentials("http://me:hush@h:1/p?token=x#y") == "http://h:1/p"
    assert printable("a\x1b[31m\r\nb") == "a?[31m b"


@pytest.mark.parametrize(
    "line",
    [
        "x (kind:region, region:1(1, 1), steps:[" + "1:{" * 32_000,
        "x (kind:region, region:1(1, 1), steps:[" + "1" * 96_000,
        "status: " + "a" * 96_000,
        "x {" + "} " * 48_000,
        "x " + ", region:" * 10_000 + "(kind:",
        "x (kind:region, region:" + "9" * 96_000,
    ],
)
def test_an_operators_line_is_read_in_linear_time(line):
    """96 KB took 20 s: each character is looked at a bounded number of times, so ten times the line takes about ten
    times as long; what grew with its square would take a hundred times."""

    def took(text: str) -> float:
        body, best = msgspec.json.encode([text]), float("inf")
        for _ in range(5):
            began = time.process_time()
            answers.operators(body)
            best = min(best, time.process_time() - began)
        return best

    assert took(line) < 40 * max(took(line[: len(line) // 10]), 0.0005)


@pytest.mark.parametrize("size", ["1.1.1", "9" * 400 + "EiB", "." * 100_000, "9" * 5000])
def test_sizes_of_any_shape_are_numbers(size):
    """What is no size is 0: no exception, no long computation."""
    assert answers.bytes_of(size) >= 0
    assert answers.evicting_by_name((f"evict-leader-scheduler-{size}",)) == ()


class Pd:
    """A placement driver of somebody else's cluster; what is asked of it is kept."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.changed: list[str] = []

    async def stores(self, *ids: int):
        known = tuple(Store(i, address) for i, address in enumerate(self.addresses, 1))
        return tuple(store for store in known if not ids or store.id in ids)

    def __getattr__(self, name: str):
        async def call(*_: object, **__: object) -> None:
            self.changed.append(name)

        return call


class Pds:
    def __init__(self, pd: Pd, *, given: bool = False) -> None:
        self._pd, self._given = pd, given

    def pd(self, _: Key) -> Pd:
        return self._pd

    def given(self, _: Key) -> bool:
        return self._given

    def sharing(self, _: Key) -> tuple:
        return ()

    def may_write(self) -> bool:
        return True


class Api:
    """A TidbCluster whose mark, forged or not, names the stores."""

    async def get(self, *_: object) -> dict:
        told = Mark(operator="7", source="handoff", reason="asked", step="x", since=0.0, pod_uid="u", store_id=1)
        marks = {"demo-tikv-0": told, "demo-tikv-1": msgspec.structs.replace(told, store_id=2)}
        return {"metadata": {"annotations": {HANDOFF: write_marks(marks)}}}


WRITES = [
    AddEvictLeader(cluster=OURS, store_id=1),
    RemoveEvictLeader(cluster=OURS, store_id=1),
    PausePdScheduler(cluster=OURS, name="balance-leader-scheduler", seconds=60),
    TransferPdLeader(cluster=OURS, to="pd-1"),
    AddPdOperator(cluster=OURS, region_id=1, body={"name": "transfer-leader", "region_id": 1}),
]


@pytest.mark.parametrize("write", WRITES, ids=lambda w: type(w).__name__)
def test_another_clusters_pd_is_never_changed(write):
    """mooring.dev/handoff, confused deputy: whatever the marks and addresses say, a PD whose stores are another
    cluster's is left alone; by its own stores it is known."""
    for theirs in (
        "bank-tikv-0.bank-tikv-peer.tidb.svc:20160",
        "demo-tikv-0.demo-tikv-peer.bank.svc:20160",
        "10.0.0.9:1",
    ):
        pd = Pd(theirs)
        outcome = asyncio.run(Actor(Api(), Pds(pd), Pds(pd)).carry_out(write))
        assert (outcome.reason, pd.changed) == (Reason.STORE_UNKNOWN, [])
        assert "another cluster" in outcome.detail or "not one of tidb/demo" in outcome.detail
    pd = Pd("demo-tikv-0.demo-tikv-peer.tidb.svc:20160")
    assert asyncio.run(Actor(Api(), Pds(pd), Pds(pd)).carry_out(write)).reason is None
    assert len(pd.changed) == 1


def test_a_store_of_another_cluster_in_a_shared_pd_is_left_alone():
    """Two clusters in one PD that an administrator named: a forged mark of one names a store of the other."""
    pd = Pd("bank-tikv-0.bank-tikv-peer.bank.svc:20160", "demo-tikv-0.demo-tikv-peer.tidb.svc:20160")
    act = Actor(Api(), Pds(pd, given=True), Pds(pd))
    assert asyncio.run(act.carry_out(AddEvictLeader(cluster=OURS, store_id=1))).reason is Reason.STORE_UNKNOWN
    assert asyncio.run(act.carry_out(AddEvictLeader(cluster=OURS, store_id=2))).reason is None


def test_every_region_operator_asks_whose_stores_these_are():
    """T12, confused deputy: forty operators in a row, and each that names a store of another cluster is refused."""
    pd = Pd("bank-tikv-0.bank-tikv-peer.bank.svc:20160", "demo-tikv-0.demo-tikv-peer.tidb.svc:20160")
    act = Actor(Api(), Pds(pd, given=True), Pds(pd))
    for number in range(20):
        for store, reason in ((2, None), (1, Reason.STORE_UNKNOWN)):
            body = {"name": "transfer-leader", "region_id": number, "to_store_id": store}
            write = AddPdOperator(cluster=OURS, region_id=number, body=body)
            assert asyncio.run(act.carry_out(write)).reason is reason
    assert pd.changed == ["add_operator"] * 20


@pytest.mark.parametrize("closes", [True, False])
async def test_what_proves_itself_and_what_is_written_to_are_one_connection(closes):
    """M1: a PD showed that it is the tenant's own and closed; the next connection led to another tenant's PD, which got
    our write."""
    stores = msgspec.json.encode({"stores": [{"store": {"id": 1, "address": "demo-tikv-0.demo-tikv-peer.tidb.svc:1"}}]})
    connections = set()

    class Proxy(Server):
        async def _answer(self, request: web.Request) -> web.Response:
            connections.add(request.transport)
            return await super()._answer(request)

    async with Proxy(stores, **({"Connection": "close"} if closes else {})) as pd:
        driver = client(pd.url)
        await driver.stores()
        async with driver.one_connection():
            assert (await driver.stores())[0].id == 1
            if closes:
                with pytest.raises(UnansweredError, match="closed the connection"):
                    await driver.add_operator({"name": "x"})
            else:
                await driver.add_operator({"name": "x"})
        await driver.stores()
        await driver.close()
    reads, write = ["GET /pd/api/v1/stores"], [] if closes else ["POST /pd/api/v1/operators"]
    assert pd.asked == [*reads, *reads, *write, *reads]
    assert closes or len(connections) == 2, "one of its own, and one beside it"


def test_a_tenants_pd_that_says_anothers_cluster_id_takes_nobodys_place():
    """E7: "one at a time" counts by PD's cluster id, which a tenant's PD can make up: between namespaces it counts only
    where the PD that had it first lists a store of that cluster."""
    looks = Outside()
    victim, evil, real = Key("tidb", "demo"), Key("evil", "demo"), Key("more", "demo")
    stores = tuple(Store(i, f"demo-tikv-0.demo-tikv-peer.{ns}.svc:20160") for i, ns in enumerate(("tidb", "more"), 1))
    theirs = PdView((Store(1, "demo-tikv-0.demo-tikv-peer.evil.svc:20160"),), (), 1, 1, cluster_id=7)
    looks.look(victim, PdView(stores, (), 1, 1, cluster_id=7), 1.0)
    looks.look(evil, theirs, 2.0)
    looks.look(real, PdView(stores, (), 1, 1, cluster_id=7), 3.0)
    assert looks.by_pd == {7: {victim, real}} and looks.pd[evil].view.cluster_id == 0
