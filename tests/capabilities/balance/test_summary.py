"""Figures kept region by region equal figures counted anew, whatever came in, in whatever order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.capabilities.balance import BalancePolicy, Summary
from mooring.capabilities.balance.book import SLICE, Book
from mooring.core.model.cluster import Key
from mooring.core.model.events import RegionsSeen
from mooring.core.model.tidb import PdView, Peer, Region, Store

DEMO = Key("tidb", "demo")

regions = st.builds(
    lambda number, stores, led, size, flow, down: Region(
        id=number,
        start_key=f"{number:04d}",
        end_key=f"{number + 1:04d}",
        peers=tuple(Peer(number * 100 + s, s) for s in stores),
        leader_store=stores[0] if led else 0,
        size_mib=size,
        written_bytes=flow,
        down_peers=(number * 100 + stores[-1],) if down else (),
    ),
    number=st.integers(1, 12),
    stores=st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True),
    led=st.booleans(),
    size=st.integers(0, 400),
    flow=st.integers(0, 4 << 20),
    down=st.booleans(),
)


@given(st.lists(st.one_of(regions, st.integers(1, 12)), max_size=60))
@settings(max_examples=80, deadline=None)
def test_kept_figures_equal_counted_ones(changes):
    """T12: after any changes every index and sum is what a fresh count gives."""
    summary = Summary(BalancePolicy())
    for change in changes:
        summary.drop(change) if isinstance(change, int) else summary.put(change)
    assert summary.check() == []


def listed(*ids, store=1):
    return tuple(Region(i, peers=(Peer(i, store),), leader_store=store, size_mib=96) for i in ids)


def test_a_long_list_is_taken_in_by_slices_and_forgets_what_is_gone():
    """T12: while slices are left the old picture serves; afterwards what was not listed is gone."""
    book = Book(BalancePolicy())
    book.take(RegionsSeen(DEMO, listed(1, 2, 3), 10.0))
    assert not book.advance()
    book.take(RegionsSeen(DEMO, listed(*range(2, SLICE + 10)), 20.0))
    assert book.advance() and 1 in book.summary.regions and book.whole_at == 10.0
    while book.advance():
        assert book.whole_at == 10.0
    assert 1 not in book.summary.regions and book.whole_at == 20.0
    assert book.summary.check() == []


def test_a_fresh_look_at_one_region_is_not_overwritten_by_an_older_list():
    """A list that began before a region was looked at alone does not bring the old one back."""
    book = Book(BalancePolicy())
    book.take(RegionsSeen(DEMO, listed(1, store=2), 11.0, asked=(1, 2)))
    book.take(RegionsSeen(DEMO, listed(1, 2, store=1), 10.0))
    book.advance()
    assert book.summary.regions[1].leader_store == 2
    assert 2 in book.summary.regions or book.seen_at(2) == 11.0


def view(**how):
    stores = (Store(1, "a:1", leader_count=3, region_count=3),)
    return PdView(**{"stores": stores, "evicting": (), "region_count": 3, "start_timestamp": 7} | how)


def test_nothing_is_decided_on_what_a_young_pd_believes():
    """T12: no schedulers listed, regions read in another life of PD, or leaders unknown: each is a doubt."""
    book = Book(BalancePolicy())
    seen = view()
    assert book.due(seen, 100.0) and "not been read" in book.doubt(seen)
    book.take(RegionsSeen(DEMO, listed(1, 2, 3), 100.0))
    book.advance()
    book.see(seen)
    assert book.doubt(seen) == ""
    assert "schedulers" in book.doubt(view(evicting=None))
    assert "since PD started" in book.doubt(view(start_timestamp=8))
    assert "leaders" in book.doubt(view(region_count=30))


def test_all_regions_are_read_again_when_pd_counts_otherwise():
    """Drift is noticed by PD's own counts, and asked about at most every few seconds."""
    book = Book(BalancePolicy())
    seen = view()
    book.due(seen, 100.0)
    book.take(RegionsSeen(DEMO, listed(1, 2, 3), 100.0))
    book.advance()
    book.see(seen)
    assert not book.due(seen, 130.0), "as it was counted, nothing is read again before its time"
    other = view(stores=(Store(1, "a:1", leader_count=9, region_count=9),))
    assert not book.due(other, 104.0)
    assert book.due(other, 105.0)
