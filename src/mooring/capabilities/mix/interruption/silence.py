"""When is a node that stopped reporting lost, and when has only the way to the API server gone?

As Kubernetes' node lifecycle controller judges it, by the other nodes of its zone, spot or not: when all of them are
silent (full disruption) nothing is deleted for silence alone; when most are (partial), ten times later. One or two
silent nodes tell little about a zone: then the whole cluster counts. A node that came back a moment ago tells that the
others may come back too, so it counts as silent for as long as silence is borne.
"""

import math
from typing import Final

import msgspec

from mooring.capabilities.drain.cordon import cordon_mark
from mooring.capabilities.mix.pace import InterruptionPolicy
from mooring.core.model.cluster import Node
from mooring.core.model.events import Change, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.world.read import WorldRead

#: The source of what mix does about notices.
SOURCE: Final = "spot"
ZONE: Final = "topology.kubernetes.io/zone"
#: From this share on a zone is in partial disruption, as in Kubernetes; not for one or two nodes.
_PARTIAL: Final = 0.55
_FEW: Final = 2
#: How much longer silence is borne then.
_SLOWER: Final = 10


class NodeReports:
    """An index of the world: which nodes report, by zone."""

    observes: frozenset[object] = frozenset({Kind.NODE})

    def __init__(self) -> None:
        self._zone: dict[str, str] = {}
        #: By zone and name: since when it is Ready; never (infinite) for one that is not.
        self._since: dict[str, dict[str, float]] = {}

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        assert isinstance(trigger, Change)
        name, node = trigger.key.name, trigger.new
        before = self._zone.pop(name, None)
        if before is not None:
            del self._since[before][name]
            if not self._since[before]:
                del self._since[before]
        if not isinstance(node, Node) or (node.ready != "True" and cordon_mark(node, SOURCE) is not None):
            return  # one that had a notice was to fall silent: it says nothing about the others
        zone = node.labels.get(ZONE, "")
        self._zone[name] = zone
        self._since.setdefault(zone, {})[name] = (node.ready_since or 0.0) if node.ready == "True" else math.inf

    def advance(self) -> bool:
        return False

    def silent(self, zone: str | None, before: float) -> tuple[int, int]:
        """How many of how many nodes of a zone (None: of the cluster) have not been Ready since before this."""
        zones = self._since.values() if zone is None else [self._since.get(zone, {})]
        return sum(since > before for one in zones for since in one.values()), sum(map(len, zones))


class Silence(msgspec.Struct, frozen=True, gc=False):
    """Of a node whose kubelet does not report."""

    #: When it counts as lost; infinite while no other node reports.
    lost_at: float
    #: What makes it count later than usual; "" when nothing does.
    held: str = ""


def silence_of(node: Node, policy: InterruptionPolicy, world: WorldRead, now: float) -> Silence | None:
    if node.ready != "Unknown":
        return None
    since = node.ready_since or now
    usual = Silence(since + policy.lost_after_s)
    if now < usual.lost_at or cordon_mark(node, SOURCE) is not None:
        return usual
    reports, zone = world.index(NodeReports), node.labels.get(ZONE)
    where = f"in zone {zone}" if zone else "in the cluster"
    silent, known = reports.silent(zone or "", now - policy.lost_after_s)
    if silent <= _FEW:
        where = "in the cluster"
        silent, known = reports.silent(None, now - policy.lost_after_s)
    words = f"{node.name} does not report, and {silent} of {known} nodes {where} do not or came back a moment ago"
    if silent == known > 1:
        return Silence(math.inf, f"{words}: nothing is deleted for silence alone")
    if silent > _FEW and silent >= _PARTIAL * known:
        later = _SLOWER * policy.lost_after_s
        return Silence(since + later, f"{words}: it counts as lost after {later:.0f} s of silence")
    return usual
