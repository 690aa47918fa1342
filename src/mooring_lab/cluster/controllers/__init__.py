"""The controllers of the embedded cluster: what kube-controller-manager does, as far as others can observe it."""
