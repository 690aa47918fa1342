"""Karpenter's termination time of a NodeClaim is put on the row of its Node (M8)."""

from mooring.core.model.cluster import Node, NodeClaim
from mooring.core.model.events import Gone, Listed, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import TERMINATES_AT
from mooring.core.world.world import World
from mooring.process.karpenter import NodeClaims

AT = "2027-01-15T09:00:00Z"


def node(name="n1", version="5"):
    return Node(name, f"uid-{name}", version)


def claim(node="n1", at=AT, uid="claim"):
    return NodeClaim(f"claim-{node}", uid, "1", node, at)


def stand():
    world = World()
    return world, NodeClaims(lambda event: list(world.apply(event)))


def time_of(world, name="n1"):
    return world.node(name).annotations.get(TERMINATES_AT)


def test_whichever_of_both_comes_first():
    """The Node need not change after its NodeClaim did."""
    for claim_first in (True, False):
        world, claims = stand()
        steps = [
            lambda claims=claims: claims.on_claim(Seen(Kind.NODE_CLAIM, claim())),
            lambda claims=claims: claims.on_node(Seen(Kind.NODE, node())),
        ]
        for step in steps if claim_first else steps[::-1]:
            step()
        assert time_of(world) == AT


def test_it_lasts_over_changes_of_the_node_and_lists_and_ends_with_the_claim():
    """M8: a moment that is corrected or taken back is followed."""
    world, claims = stand()
    claims.on_node(Listed(Kind.NODE, (node(), node("n2"))))
    claims.on_claim(Listed(Kind.NODE_CLAIM, (claim(), claim("", uid="not-there-yet"), claim("n2", "", "no-end"))))
    assert (time_of(world), time_of(world, "n2")) == (AT, None)
    claims.on_node(Seen(Kind.NODE, node(version="6")))
    claims.on_node(Listed(Kind.NODE, (node(version="6"), node("n2"))))
    assert time_of(world) == AT
    claims.on_claim(Seen(Kind.NODE_CLAIM, claim(at="2027-01-15T08:00:00Z")))
    assert time_of(world) == "2027-01-15T08:00:00Z"
    claims.on_claim(Gone(Kind.NODE_CLAIM, claim().key, "claim"))
    assert time_of(world) is None
