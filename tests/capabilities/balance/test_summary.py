"""Figures kept region by region equal figures counted anew, whatever came in, in whatever order."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.capabilities.balance import BalancePolicy, Summary
from mooring.capabilities.balance.book import RANGE, Book
from mooring.core.model.cluster import Key
from mooring.core.model.events import RegionsSeen
from mooring.core.model.placement import Placement
from mooring.core.model.tidb import PdView, Peer, Region, Store
from mooring.core.queue.config import REGION_SCHEDULERS

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


@pytest.mark.parametrize("sources", [REGION_SCHEDULERS, ("balance-leader", "balance-region")])
@given(changes=st.lists(st.one_of(regions, st.integers(1, 12)), max_size=60))
@settings(max_examples=80, deadline=None)
def test_kept_figures_equal_counted_ones(sources, changes):
    """T12: after any changes every index and sum is what a fresh count gives."""
    summary = Summary(BalancePolicy(sources=sources))
    for change in changes:
        summary.drop(change) if isinstance(change, int) else summary.put(change)
    assert summary.check() == []


def listed(*ids, store=1):
    return tuple(
        Region(i, f"{i:06X}", f"{i + 1:06X}", peers=(Peer(i, store),), leader_store=store, size_mib=96) for i in ids
    )


def test_a_long_list_is_taken_in_by_parts_and_forgets_what_is_gone():
    """T12: while parts are left the old picture serves; afterwards what was not listed is gone."""
    book = Book(BalancePolicy())
    book.take(RegionsSeen(DEMO, listed(1, 2, 3), 10.0))
    assert not book.advance()
    book.take(RegionsSeen(DEMO, listed(*range(2, RANGE + 10)), 20.0))
    assert book.advance() and 1 in book.summary.regions and book.whole_at == 10.0
    while book.advance():
        assert book.whole_at == 10.0
    assert 1 not in book.summary.regions and book.whole_at == 20.0
    assert book.summary.check() == []


def test_regions_are_read_in_rotation_by_range():
    """T12: a range replaces what was known of it and nothing else; when the last has come, everything was read."""
    book = Book(BalancePolicy())
    book.see(view(), 5.0)
    book.take(RegionsSeen(DEMO, listed(1, 2), 10.0, start_key="", end_key="000003"))
    assert (book.cursor, book.whole_at) == ("000003", None)
    assert book.read_at(view(), 0.0) == 0.0, "the first rotation goes on at once"
    book.take(RegionsSeen(DEMO, listed(3, 4), 11.0, start_key="000003", end_key=""))
    assert (book.cursor, book.whole_at) == ("", 10.0)
    book.take(RegionsSeen(DEMO, listed(2), 80.0, start_key="", end_key="000003"))
    assert sorted(book.summary.regions) == [2, 3, 4] and book.whole_at == 10.0
    book.take(RegionsSeen(DEMO, listed(1), 81.0, start_key="000002", end_key="000003"))
    assert book.cursor == "000003", "an answer to another question does not turn the page"
    assert book.summary.check() == []


def test_a_million_regions_are_read_at_a_steady_pace():
    """T12: the time of a rotation grows with the regions, so that what it costs per second does not."""
    book = Book(BalancePolicy())
    many = PdView((), (), 100_000, 7)
    book.see(many, 0.0)
    book.take(RegionsSeen(DEMO, listed(*range(100_000)), 10.0))
    book.flush()
    book.take(RegionsSeen(DEMO, listed(*range(RANGE)), 80.0, start_key="", end_key=f"{RANGE:06X}"))
    ranges = 100_000 / RANGE
    assert book.read_at(many, 0.0) - 80.0 == pytest.approx(60 / ranges, rel=0.05)


def test_a_fresh_look_at_one_region_is_not_overwritten_by_an_older_list():
    """A list that began before a region was looked at alone does not bring the old one back."""
    book = Book(BalancePolicy())
    book.take(RegionsSeen(DEMO, listed(1, store=2), 11.0, asked=(1, 2)))
    book.take(RegionsSeen(DEMO, listed(1, 2, store=1), 10.0))
    assert book.summary.regions[1].leader_store == 2
    assert 2 not in book.summary.regions and book.seen_at(2) == 11.0


def view(**how):
    stores = (Store(1, "a:1", leader_count=3, region_count=3),)
    told = {"stores": stores, "evicting": (), "region_count": 3, "start_timestamp": 7, "placement": Placement()}
    return PdView(**told | how)


@pytest.fixture
def book():
    """Read at 100, as PD counts."""
    book = Book(BalancePolicy())
    book.see(view(), 99.0)
    book.take(RegionsSeen(DEMO, listed(1, 2, 3), 100.0))
    return book


def test_nothing_is_decided_on_what_a_young_pd_believes(book):
    """T12: no schedulers listed, regions read in another life of PD or before we began, leaders unknown: doubts."""
    young = Book(BalancePolicy())
    assert young.read_at(view(), 90.0) == 0.0 and "not been read" in young.doubt(view(), 90.0, 100.0)
    assert book.doubt(view(), 90.0, 101.0) == ""
    assert "placement rules" in book.doubt(view(placement=None), 90.0, 101.0)
    assert "schedulers" in book.doubt(view(evicting=None), 90.0, 101.0)
    assert "since PD started" in book.doubt(view(start_timestamp=8), 90.0, 101.0)
    assert "not been read" in book.doubt(view(), 100.5, 101.0)
    assert "leaders" in book.doubt(view(region_count=30), 90.0, 101.0)
    assert "last read 300 s ago" in book.doubt(view(), 90.0, 400.0)


def test_a_list_that_began_before_pd_restarted_is_of_its_old_life():
    """T12: the look that shows the restart comes before the answer of a read that is older."""
    book = Book(BalancePolicy())
    book.see(view(), 99.0)
    book.see(view(start_timestamp=8), 101.0)
    book.take(RegionsSeen(DEMO, listed(1, 2, 3), 100.0))
    assert "since PD started" in book.doubt(view(start_timestamp=8), 90.0, 102.0)


def test_all_regions_are_read_again_when_pd_counts_otherwise(book):
    """Drift is noticed by PD's own counts, and asked about at most every few seconds."""
    assert book.read_at(view(), 90.0) == 160.0, "as it was counted, nothing is read again before its time"
    other = view(stores=(Store(1, "a:1", leader_count=9, region_count=9),))
    assert book.read_at(other, 90.0) == 105.0


def test_a_region_without_a_leader_is_read_alone(book):
    """T12: one leaderless region makes nobody read all of them: it is asked for by its id, every few seconds."""
    (region,) = listed(2)
    book.take(RegionsSeen(DEMO, (msgspec.structs.replace(region, leader_store=0),), 101.0, asked=(2,)))
    counted = view(stores=(Store(1, "a:1", leader_count=2, region_count=3),))
    assert book.read_at(counted, 90.0) == 160.0
    assert book.leaderless(105.9) == () and book.leaderless(106.0) == (2,)
    book.take(RegionsSeen(DEMO, (region,), 106.0, asked=(2,)))
    assert book.leaderless(200.0) == ()
