"""Where a cluster's PD is: settings, annotation, Service, in that order; and a client that outlives its TidbCluster."""

import msgspec
import pytest

from mooring.clients.ports import NotFoundError
from mooring.core.model.cluster import Key
from mooring.core.model.events import Gone, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import PD_ENDPOINTS
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.world import World
from mooring.process.pd_directory import PdDirectory, endpoints, may_ask, owner_of

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
