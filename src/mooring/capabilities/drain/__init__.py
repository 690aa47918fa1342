"""The only place that disturbs an ordinary pod or node; restarts of TiKV, PD and TiDB members stay in handoff.

    component    which member of which TidbCluster a pod is
    readiness    available as Kubernetes means it, and the facts about replicas that are missing
    cordon       cordon a node with a mark, and lift what the mark says we did
    request      who asks a pod to leave, until when: the mark `mooring.dev/leaving`
    replace_pod  the operator: replacement first where Kubernetes allows, evict or delete, await
    empty_node   which pods must leave a node, how each goes, what keeps one
    evict        what keeps a pod from being evicted
    room         what keeps a pod off a node
    volumes      volumes that keep a pod on a node

Pure functions over what the world shows.
"""
