"""The objects of every kind that the world is made of, one table each."""

from typing import Any

from mooring.core.model.cluster import Claim, ConfigMap, Node, Pdb, Pod, PodEviction, ReplicaSet, Volume, Workload
from mooring.core.model.kinds import WORKLOADS, Kind
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.table import Table


class Rows:
    def __init__(self) -> None:
        self.pods: Table[Pod] = Table()
        self.nodes: Table[Node] = Table()
        self.deployments: Table[Workload] = Table()
        self.stateful_sets: Table[Workload] = Table()
        self.replica_sets: Table[ReplicaSet] = Table()
        self.pdbs: Table[Pdb] = Table()
        self.volumes: Table[Volume] = Table()
        self.claims: Table[Claim] = Table()
        self.config_maps: Table[ConfigMap] = Table()
        self.tidb_clusters: Table[TidbCluster] = Table()
        self.v2_clusters: Table[TidbCluster] = Table()
        self.evictions: Table[PodEviction] = Table()
        self.by_kind: dict[Kind, Table[Any]] = {
            Kind.POD: self.pods,
            Kind.NODE: self.nodes,
            Kind.DEPLOYMENT: self.deployments,
            Kind.STATEFUL_SET: self.stateful_sets,
            Kind.ROLLOUT: Table(),
            Kind.CLONE_SET: Table(),
            Kind.REPLICA_SET: self.replica_sets,
            Kind.PDB: self.pdbs,
            Kind.PV: self.volumes,
            Kind.PVC: self.claims,
            Kind.CONFIG_MAP: self.config_maps,
            Kind.TIDB_CLUSTER: self.tidb_clusters,
            Kind.TIDB_V2: self.v2_clusters,
            Kind.EVICTION: self.evictions,
        }
        self.workloads: dict[str, Table[Workload]] = {kind.value: self.by_kind[kind] for kind in WORKLOADS}
