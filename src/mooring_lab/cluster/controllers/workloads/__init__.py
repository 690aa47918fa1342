"""Deployments, ReplicaSets, StatefulSets and DaemonSets, as kube-controller-manager runs them."""
