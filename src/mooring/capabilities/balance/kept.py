"""What a checkpoint keeps of a book of regions: plain values, taken at once. There may be many clusters and regions."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from mooring.capabilities.balance.placement import RuleBook
from mooring.capabilities.balance.summary import StoreSummary, bytes_of

if TYPE_CHECKING:
    from mooring.capabilities.balance.book import Book

#: Attributes that are values, and those that are sets of ids in their order.
STORE: Final = (
    "id", "state", "labels", "leader_weight", "region_weight", "refuses", "apart", "full", "heard", "led_then",
    "silent", "bereft", "size_mib", "flow",
)  # fmt: skip
STORE_IDS: Final = ("held", "led", "hot")
SUMMARY_IDS: Final = ("small", "large", "broken", "leaderless")
BOOK: Final = (
    "_view", "aside_since", "aside_until", "_life_since", "whole_at", "_life", "_rotation",
    "cursor", "_read_at",
)  # fmt: skip
#: Regions of a book that is kept as one value.
FEW: Final = 200
_store, _store_ids, _book = attrgetter(*STORE), attrgetter(*STORE_IDS), attrgetter(*BOOK)
_summary_ids = attrgetter(*SUMMARY_IDS)


def kept_of(book: "Book") -> tuple[Any, ...] | list[Any]:
    """While no list of regions is being taken in. Of many, the containers themselves: they are copied in steps."""
    summary = book.summary
    placement = None if summary.rules is None else summary.rules.placement
    voters, by_voters = summary._voters, summary.by_voters  # noqa: SLF001
    order, seen, leaving = summary._order, book._seen, book._leaving  # noqa: SLF001
    if len(summary.regions) > FEW:
        stores = [[_store(row), list(_store_ids(row))] for row in summary.stores.values()]
        ids, regions = list(_summary_ids(summary)), [summary.regions, order]
        return [_book(book), [seen, leaving], placement, stores, summary.size_mib, [voters, by_voters], ids, regions]
    of_stores = tuple((_store(row), tuple(map(tuple, _store_ids(row)))) for row in summary.stores.values())
    of_voters = tuple(voters.items()), tuple((k, tuple(v)) for k, v in by_voters.items())
    of_ids, of_regions = tuple(map(tuple, _summary_ids(summary))), (tuple(summary.regions.values()), tuple(order))
    of_seen = tuple(seen.items()), tuple(leaving.items())
    return _book(book), of_seen, placement, of_stores, summary.size_mib, of_voters, of_ids, of_regions


def restore(book: "Book", kept: Sequence[Any]) -> "Book":
    """Into one that has seen nothing."""
    values, (seen, leaving), placement, stores, size_mib, (voters, by_voters), ids, (regions, order) = kept
    summary = book.summary
    vars(book).update(zip(BOOK, values, strict=True))
    view = values[BOOK.index("_view")]
    book._operators = {op.region_id: op for op in view.operators} if view is not None else {}  # noqa: SLF001
    book._seen, book._leaving = dict(seen), dict(leaving)  # noqa: SLF001
    summary.rules = None if placement is None else RuleBook(placement)
    summary.size_mib = size_mib
    for attributes, of_store in stores:
        row = summary.stores[attributes[0]] = StoreSummary(attributes[0])
        for name, value in zip(STORE, attributes, strict=True):
            setattr(row, name, value)
        for name, held in zip(STORE_IDS, of_store, strict=True):
            setattr(row, name, dict.fromkeys(held))
    summary._voters = dict(voters)  # noqa: SLF001
    summary.by_voters = {k: dict.fromkeys(v) for k, v in dict(by_voters).items()}
    for name, held in zip(SUMMARY_IDS, ids, strict=True):
        setattr(summary, name, dict.fromkeys(held))
    regions = regions.values() if isinstance(regions, Mapping) else regions
    summary.regions = {region.id: region for region in regions}
    summary.bytes = sum(map(bytes_of, regions))
    summary._order = list(order)  # noqa: SLF001
    return book
