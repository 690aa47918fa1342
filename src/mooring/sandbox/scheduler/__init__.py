"""A scheduler near enough to kube-scheduler that its choices can be trusted in a rehearsal."""
