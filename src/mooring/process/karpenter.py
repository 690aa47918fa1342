"""Karpenter's deadline, read where its CRD is there (M8, D3).

A NodeClaim with a `terminationGracePeriod` says when Karpenter deletes what is left of its node by force, past budgets
and past the gate: annotation `karpenter.sh/nodeclaim-termination-timestamp`. The Node does not have it. So it is put on
the Node's row where the row comes in, as if the Node said it: from there on it is a sign like any other, in recordings
too. Nothing waits for it: a cluster without Karpenter has no NodeClaims.
"""

from collections.abc import Callable

import msgspec

from mooring.core.model.cluster import Node, NodeClaim
from mooring.core.model.events import Gone, KubeEvent, Listed, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import TERMINATES_AT


class NodeClaims:
    """Between the informers of nodes and NodeClaims, and the engine."""

    def __init__(self, tell: Callable[[KubeEvent], None]) -> None:
        self._tell = tell
        #: NodeClaim's uid → its node and the time, where both are there.
        self._claims: dict[str, tuple[str, str]] = {}
        #: Node's name → the time.
        self._times: dict[str, str] = {}
        self._nodes: dict[str, Node] = {}

    def on_node(self, event: KubeEvent) -> None:
        match event:
            case Listed(objects=objects):
                nodes = tuple(one for one in objects if isinstance(one, Node))
                self._nodes = {node.name: node for node in nodes}
                self._tell(Listed(Kind.NODE, tuple(map(self._with_time, nodes))))
            case Seen(object=Node() as node):
                self._nodes[node.name] = node
                self._tell(Seen(Kind.NODE, self._with_time(node)))
            case Gone(key=key):
                self._nodes.pop(key.name, None)
                self._tell(event)

    def on_claim(self, event: KubeEvent) -> None:
        match event:
            case Listed(objects=objects):
                self._claims = {one.uid: (one.node, one.terminates_at) for one in objects if isinstance(one, NodeClaim)}
            case Seen(object=NodeClaim() as claim):
                self._claims[claim.uid] = (claim.node, claim.terminates_at)
            case Gone(uid=uid):
                self._claims.pop(uid, None)
        before, self._times = self._times, {node: at for node, at in self._claims.values() if node and at}
        for name in sorted(before.keys() | self._times.keys()):
            node = self._nodes.get(name)
            if node is not None and before.get(name) != self._times.get(name):
                # The Node itself has no new version: without one, the row is taken as it is.
                row = msgspec.structs.replace(self._with_time(node), resource_version="")
                self._tell(Seen(Kind.NODE, row))

    def _with_time(self, node: Node) -> Node:
        at = self._times.get(node.name)
        if at is None:
            return node
        return msgspec.structs.replace(node, annotations={**node.annotations, TERMINATES_AT: at})
