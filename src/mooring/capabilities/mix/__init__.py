"""Mix: replicas of one workload across on-demand and spot nodes.

Admission gives each new pod its place; the capability corrects what admission could not, and acts on notices.

    targets       how many of R replicas belong on on-demand nodes; labels: what a workload asks for, and what is wrong
    slots         whose pod it is, the class it counts as, and who holds which slot of one owner (SlotLedger)
    schemes       the labels by which nodes tell their class, as written into pods; policy: the settings
    admission/    decide: the class of a pod that is about to be created; book: the slots, an index of the world
    capability    Mix: keys `workload/<kind>/<ns>/<name>` and `node/<name>`
    rebalance/    workload: what is done about one workload; diagnosis, misplaced, health: what is wrong with it;
                  room: would a node take the pod; returns: how many go back to spot in a minute
    interruption/ notices: who says that a node goes; node, pods: what is done about it
    moves         the operators `replace-pod`, and what each is allowed; memory: what outlives a process
    worth         what it saves; explain: words for people

A slot belongs to an owner uid: a ReplicaSet (so each revision has its own slots) or a StatefulSet (slot = ordinal −
start). A free slot is refilled lowest first, and a pod takes the class of its slot, unless the others are off their
sequence: then it takes the class that brings the total to T(R). So to turn a spot replica into an on-demand one it is
enough to let any one spot pod go: its successor is admitted with the class that is missing.
"""
