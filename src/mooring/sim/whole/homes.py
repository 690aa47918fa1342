"""H1, H3: a TiDB member that is recreated is bound to the node it had, whenever the scheduler offers that node.

What the scheduler offers is what can take the member: it is Ready, open and has room. A member that one of our own
operators moved off its node has no home any more; one that was bound a moment ago may have none yet.
"""

from typing import TYPE_CHECKING

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, read_mark
from mooring.core.model.tidb import COMPONENT
from mooring.process.replica import Replica
from mooring.sandbox.controllers import podstate
from mooring.sim.scenarios.home import ask_mooring
from mooring.sim.whole.build import TIDB

if TYPE_CHECKING:
    from mooring.sim.whole.invariants import Watch


class Homes:
    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        #: Member → its last node, and since when it had it.
        self._last: dict[str, tuple[str, float]] = {}
        #: Nodes that were offered for a pod, by its UID, to a replica that can tell.
        self._offered: dict[str, frozenset[str]] = {}

    def begin(self) -> None:
        sim = self._watch.sim
        if "home" in sim.plan.shape.features:
            for pod in sim.rig.cluster.store.list(Kind.POD, TIDB):
                self.on_pod("ADDED", None, pod)
            sim.rig.cluster.store.subscribe(Kind.POD, self.on_pod)
            ask_mooring(sim.rig, heard=self.heard)

    def heard(self, replica: Replica, request: Json) -> None:
        """A scheduler has asked this replica about a pod."""
        engine = replica.engine
        answers = engine.synced and "home" in engine.on
        self._offered[request["Pod"]["metadata"]["uid"]] = frozenset(request["NodeNames"] if answers else ())

    def on_pod(self, _: str, old: Json | None, new: Json | None) -> None:
        if new is None or podstate.labels_of(new).get(COMPONENT) != "tidb":
            return
        name, node = new["metadata"]["name"], podstate.node_of(new)
        mark = podstate.annotations_of(new).get(LEAVING)
        if mark is not None and getattr(read_mark(mark), "source", "") != "handoff":
            self._last.pop(name, None)
        elif node and (old is None or not podstate.node_of(old)):
            self._bound(name, new["metadata"]["uid"], node)

    def _bound(self, name: str, uid: str, node: str) -> None:
        watch, offered = self._watch, self._offered.pop(uid, frozenset())
        home, since = self._last.get(name, ("", 0.0))
        if home in offered:
            if node == home:
                watch.hit("member-came-home")
            elif watch.known(since):
                watch.fail("H1 a member goes home", f"{name} is bound to {node}; {home}, its last node, was offered")
        self._last[name] = (node, watch.now)
