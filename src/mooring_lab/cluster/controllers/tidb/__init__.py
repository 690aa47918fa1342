"""A stand-in for tidb-operator: StatefulSets from a TidbCluster, upgrades, evict-leader."""
