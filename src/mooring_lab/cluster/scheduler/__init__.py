"""A scheduler that follows kube-scheduler closely enough for a rehearsal."""
