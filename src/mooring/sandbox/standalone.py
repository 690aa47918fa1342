"""The embedded cluster on its own, behind the API that kubectl speaks."""

from mooring.sandbox.clock import Timeline, WallDriver
from mooring.sandbox.cluster import Cluster
from mooring.sandbox.http.facade import Facade


def standalone(nodes: int, spot: int, now: float, speed: float, port: int, *, tidb: bool) -> Facade:
    """Not serving yet. `tidb`: with a TidbCluster tidb/demo and its PD."""
    timeline = Timeline(now)
    cluster = Cluster(seed=1, timeline=timeline, log=False)
    for number in range(nodes):
        cluster.add_node(f"n{number + 1}", capacity="on-demand", rack=number // 2 + 1)
    for number in range(spot):
        cluster.add_node(f"s{number + 1}", capacity="spot", zone="a")
    if tidb:
        cluster.tidb_cluster("tidb", "demo", tidb=3, tikv=3, pd=0, with_pd=True)
    return Facade(cluster.api.server, port=port, driver=WallDriver(timeline, speed=speed))
