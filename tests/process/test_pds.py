"""Where a cluster's PD is: settings, annotation, Service, in that order; and a client that outlives its TidbCluster."""

import msgspec
import pytest

from mooring.clients.pd.transport import in_cluster
from mooring.clients.ports import NotFoundError, RefusedError
from mooring.core.model.cluster import Key
from mooring.core.model.events import Gone, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import PD_ENDPOINTS
from mooring.core.model.tidb import Store, TidbCluster
from mooring.core.world.world import World
from mooring.process.pd_directory import PdDirectory, _belongs, endpoints, may_ask, owner_of, pd_service

TC = TidbCluster("tidb", "demo", "u1", "1")


def test_settings_beat_the_annotation_beats_the_service():
    """The most explicit place wins; TLS shows in the scheme of the last one."""
    annotated = msgspec.structs.replace(TC, annotations={PD_ENDPOINTS: "http://a:2379, http://b:2379"})
    assert endpoints(annotated, {"tidb/demo": ("http://x:1",)}) == ("http://x:1",)
    assert endpoints(annotated, {}, ["?:2379"]) == ("http://a:2379", "http://b:2379")
    assert endpoints(TC, {}) == ("http://demo-pd.tidb.svc:2379",)
    assert endpoints(msgspec.structs.replace(TC, tls=True), {}) == ("https://demo-pd.tidb.svc:2379",)


class Driver:
    def __init__(self, urls):
        self.urls, self.closed = urls, False

    async def close(self):
        self.closed = True


async def test_one_client_per_cluster_kept_when_the_cluster_goes():
    """Its PD may outlive it, and what was begun there must end; a changed address makes a new client."""
    world, key = World(), Key("tidb", "demo")
    directory = PdDirectory(world, lambda _, urls: Driver(urls), hosts=["a:2379"])
    with pytest.raises(NotFoundError):
        directory.pd(key)
    world.apply(Seen(Kind.TIDB_CLUSTER, TC))
    first = directory.pd(key)
    assert directory.pd(key) is first
    moved = msgspec.structs.replace(TC, resource_version="2", annotations={PD_ENDPOINTS: "http://a:2379"})
    world.apply(Seen(Kind.TIDB_CLUSTER, moved))
    second = directory.pd(key)
    assert second.urls == ("http://a:2379",)
    world.apply(Gone(Kind.TIDB_CLUSTER, key, "u1"))
    assert directory.pd(key) is second
    await directory.close()
    assert first.closed
    assert second.closed


def test_a_cluster_without_a_pd_of_its_own_uses_the_one_it_names():
    """E7: `spec.cluster` of a heterogeneous cluster; members behind that Service may be asked, too."""
    tc = TidbCluster("tidb", "more", "u", "1", tikv_replicas=3, pd_of=Key("tidb", "demo"))
    urls = endpoints(tc, {})
    assert urls == ("http://demo-pd.tidb.svc:2379",) and owner_of(urls) == Key("tidb", "demo")
    assert may_ask("http://demo-pd-1.demo-pd-peer.tidb.svc:2379", owner_of(urls))
    assert owner_of(("http://10.0.0.1:2379",)) is None


V2 = TidbCluster("tidb", "demo", "u1", "1", v2=True, pd_url="http://basic-pd.tidb:2379")


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://basic-pd.tidb:2379", "http://basic-pd.tidb.svc:2379"),
        ("https://basic-pd.tidb.svc.cluster.local:2379", "https://basic-pd.tidb.svc.cluster.local:2379"),
        ("", None),
        ("http://basic-pd.other:2379", None),
        ("http://tidb:2379", None),
        ("http://evil.example.com", None),
        ("http://basic-pd.tidb:2379/path", None),
        ("http://[", None),
    ],
)
def test_operator_v2_says_where_its_pd_is(url, asked):
    """E12: `status.pd` names the Service of a group, in its own namespace; it is asked by a name inside the cluster."""
    tc = msgspec.structs.replace(V2, pd_url=url)
    if asked is None:
        with pytest.raises(RefusedError):
            endpoints(tc, {})
    else:
        assert tuple(map(in_cluster, endpoints(tc, {}))) == (asked,)
        assert may_ask(in_cluster("http://basic-pd-a1b2.basic-pd-peer.tidb:2379"), pd_service(url))
    assert endpoints(tc, {"tidb/demo": ("http://x:1",)}) == ("http://x:1",)


def test_the_members_of_v2_are_stores_of_its_namespace():
    """E12: a store of v2 belongs to its cluster by namespace, name and domain; PD of another one is left alone."""

    def store(address):
        return Store(1, address)

    assert _belongs(store("basic-tikv-a1b2.basic-tikv-peer.tidb:20160"), V2.key, (V2,), given=False)
    assert not _belongs(store("basic-tikv-a1b2.basic-tikv-peer.other:20160"), V2.key, (V2,), given=False)
    assert not _belongs(store("basic-tikv-a1b2.basic-tikv-peer.tidb.svc.b.local:20160"), V2.key, (V2,), given=False)
    assert not _belongs(store("web-a1b2.basic-tikv-peer.tidb:20160"), V2.key, (V2,), given=False)
