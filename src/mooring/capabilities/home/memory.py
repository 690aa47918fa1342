"""Where a member's home is: the records of its node, and who writes each.

TiDB members: `TidbCluster.status.tidb.members[<pod>].node`, the design's field, which tidb-operator writes itself.
Other StatefulSets: an annotation of ours on the StatefulSet. The same annotation, on either, remembers which node one
of our own operators moved a member off (`left`): it is not sent back there, and where it lands is its new home.
"""

from collections.abc import Mapping

import msgspec

from mooring.capabilities.home.bindings import LastBindings
from mooring.capabilities.home.members import MemberSet
from mooring.core.model.cluster import Key
from mooring.core.model.marks import HOME
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.read import WorldRead


class Place(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    node: str = ""
    #: One of our operators moved it off this node.
    left: str = ""


Places = dict[str, Place]
_places = msgspec.json.Decoder(Places)


def read_places(annotations: Mapping[str, str]) -> Places:
    """An annotation that cannot be read remembers nothing, and is written again with the next change."""
    try:
        return _places.decode(annotations.get(HOME, "") or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}


def write_places(places: Mapping[str, Place]) -> str | None:
    """None removes the annotation."""
    return msgspec.json.encode(dict(sorted(places.items()))).decode() if places else None


def recorded(member_set: MemberSet, name: str, places: Places | None = None) -> str:
    """The node that is written down for a member, whether it may go back there or not; "" when there is none."""
    place = (read_places(member_set.keeper.annotations) if places is None else places).get(name, Place())
    if isinstance(member_set.keeper, TidbCluster):
        return member_set.keeper.tidb_member_nodes.get(name, "") or place.node
    return place.node


def home_of(member_set: MemberSet, name: str, places: Places | None = None) -> str:
    """Where a member belongs; "" while unknown, or after one of our operators moved it off."""
    places = read_places(member_set.keeper.annotations) if places is None else places
    node = recorded(member_set, name, places)
    return "" if node == places.get(name, Place()).left else node


def last_home(member_set: MemberSet, name: str, world: WorldRead) -> str:
    """Where a member that is to be scheduled belongs: what was seen last, recorded or not; "": unknown."""
    places = read_places(member_set.keeper.annotations)
    return seen_home(member_set, name, world, places) or home_of(member_set, name, places)


def seen_home(member_set: MemberSet, name: str, world: WorldRead, places: Places | None = None) -> str:
    """Where a member belongs by what this process saw itself; "" when it saw nothing, or one of our operators moved it
    off."""
    places = read_places(member_set.keeper.annotations) if places is None else places
    part = member_set.set.name if member_set.set is not None else member_set.prefix.removesuffix("-")
    seen = world.index(LastBindings).node_of(Key(member_set.keeper.namespace, name), part)
    return "" if seen == places.get(name, Place()).left else seen
