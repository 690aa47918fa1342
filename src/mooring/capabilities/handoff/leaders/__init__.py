"""Members of any system with leaders (etcd, Patroni, a hook): leadership moves first, seen twice, then the pod goes."""
