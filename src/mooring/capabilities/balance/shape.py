"""merge and split: how large a region is. Small neighbours on the same stores become one, large regions two.

Only neighbours whose peers already lie on the same stores are merged: others would have to be moved first, at a cost
that was not requested and that a merge's price does not contain.
"""

from collections.abc import Iterator

from mooring.capabilities.balance import picture as moves
from mooring.capabilities.balance.picture import Picture, Proposal
from mooring.capabilities.balance.policy import MERGE, SPLIT
from mooring.capabilities.balance.summary import window
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import Region


def merge(picture: Picture) -> Iterator[Proposal]:
    """A small region into the smaller of its neighbours, if what comes out is not soon split again."""
    for region_id in window(picture.summary.small, picture.turn):
        region = picture.free(region_id)
        if region is None:
            continue
        into = min(_partners(picture, region), key=lambda other: (other.size_mib, other.id), default=None)
        if into is not None:
            both = f"{region.size_mib} and {into.size_mib} MiB become one region"
            yield Proposal(MERGE, moves.merge(region, into), Reason.BALANCE, both)


def _partners(picture: Picture, region: Region) -> Iterator[Region]:
    where, rules = {p.store_id for p in region.peers}, picture.summary.rules
    for other in picture.summary.neighbours(region):
        fits = region.size_mib + other.size_mib <= picture.policy.split_above_mib // 2
        fits = fits and (rules is None or rules.of(region) == rules.of(other))
        if fits and picture.free(other.id) is not None and {p.store_id for p in other.peers} == where:
            yield other


def split(picture: Picture) -> Iterator[Proposal]:
    for region_id in window(picture.summary.large, picture.turn):
        region = picture.free(region_id)
        if region is not None:
            size = f"{region.size_mib} MiB, more than {picture.policy.split_above_mib}"
            yield Proposal(SPLIT, moves.split(region), Reason.BALANCE, size)
