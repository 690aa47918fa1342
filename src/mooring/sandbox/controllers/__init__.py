"""The life in the embedded cluster: what kube-controller-manager does, as far as a decider or a user can observe it."""
