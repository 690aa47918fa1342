"""What fleet, mix and handoff share about taking a pod off a node: what it is, whether it serves, what keeps it.

    component   which member of which TidbCluster a pod is
    readiness   available as Kubernetes means it, and the facts about replicas that are missing
    cordon      cordon a node with a mark, and lift what the mark says we did
    detach      the replacement first, then the pod
    evict       what keeps a pod from being evicted
    room        what keeps a pod off a node
    volumes     volumes that keep a pod on a node

Pure functions over what the world shows.
"""
