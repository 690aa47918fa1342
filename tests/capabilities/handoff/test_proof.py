"""E6: when a look at PD shows an empty store, and everything that makes it show nothing."""

import msgspec
import pytest

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.proof import disproof, elected_at, prove, recheck_reason
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import PdView, Store
from mooring.core.world.outside import Outside

NOW = 1_000_000.0


def store(id_, leaders, regions=90, **how):
    return Store(id_, f"demo-tikv-{id_ - 1}:20160", leader_count=leaders, region_count=regions, **how)


EMPTY = PdView(
    (store(1, 0, last_heartbeat_at=NOW - 5), store(2, 45), store(3, 45)), (1,), 90, start_timestamp=int(NOW - 86_400)
)


def judged(view, now=NOW):
    return disproof(view, 1, now, HandoffPolicy())


def changed(**how):
    """The proof with the store of the question changed."""
    first = msgspec.structs.replace(EMPTY.stores[0], **how)
    return msgspec.structs.replace(EMPTY, stores=(first, *EMPTY.stores[1:]))


def test_an_empty_store_is_seen_to_be_empty():
    """Evicted, Up, heard from, zero, and all leaders accounted for elsewhere by a PD that has been up for long."""
    assert judged(EMPTY) is None


@pytest.mark.parametrize(
    ("view", "reason", "words"),
    [
        (msgspec.structs.replace(EMPTY, stores=EMPTY.stores[1:]), Reason.STORE_UNKNOWN, "does not know store 1"),
        (msgspec.structs.replace(EMPTY, evicting=None), Reason.PD_UNSURE, "has just started"),
        (msgspec.structs.replace(EMPTY, evicting=(2,)), Reason.PD_UNSURE, "no evict-leader scheduler"),
        (changed(state="Disconnected"), Reason.STORE_NOT_UP, "Disconnected"),
        (changed(last_heartbeat_at=NOW - 61), Reason.PD_UNSURE, "heartbeat"),
        (changed(last_heartbeat_at=None), Reason.PD_UNSURE, "never sent a heartbeat"),
        (changed(leader_count=3), Reason.LEADERS_LEFT, "3 leaders left"),
        (msgspec.structs.replace(EMPTY, start_timestamp=int(NOW - 59)), Reason.PD_UNSURE, "started 59 s ago"),
        (msgspec.structs.replace(EMPTY, region_count=92), Reason.PD_UNSURE, "90 leaders for 92 regions"),
    ],
)
def test_each_part_of_the_proof_is_needed(view, reason, words):
    """Take one part away and nothing is proven, with that part as the reason."""
    found = judged(view)
    assert found.reason is reason
    assert words in found.detail


@pytest.mark.parametrize(
    ("leaders", "regions", "up_s", "share", "proven"),
    [
        (999, 1000, 86_400, 0.001, True),
        (999, 1000, 86_400, 0.0, False),
        (999, 1000, 599, 0.001, False),
        (998, 1000, 86_400, 0.001, False),
        (9_990, 10_000, 86_400, 0.001, True),
        (9_989, 10_000, 86_400, 0.001, False),
    ],
)
def test_regions_without_a_leader_are_tolerated_as_stated(leaders, regions, up_s, share, proven):
    """E6: one region is lost: that is no doubt about this store, once PD has been up for long; more than stated are."""
    stores = (store(1, 0, last_heartbeat_at=NOW - 5), store(2, leaders, regions))
    view = PdView(stores, (1,), regions, start_timestamp=int(NOW - up_s))
    assert (disproof(view, 1, NOW, HandoffPolicy(leaderless_share=share)) is None) == proven


def test_false_zero_of_a_pd_that_lost_its_regions():
    """Zero leaders for zero regions add up; a PD that knows no regions proves nothing at any age."""
    nothing = tuple(store(i, 0, 0) for i in (1, 2, 3))
    view = msgspec.structs.replace(EMPTY, stores=nothing, region_count=0)
    assert judged(view).reason is Reason.PD_UNSURE


def test_store_without_regions_is_believed_after_a_while():
    """A new or emptied store must not wait for ever, nor be believed while PD may still be learning."""
    view = changed(region_count=0)
    young = msgspec.structs.replace(view, start_timestamp=int(NOW - 599))
    assert judged(young).reason is Reason.PD_UNSURE
    assert judged(view) is None


@pytest.mark.parametrize(
    ("own", "other", "until"),
    [
        (None, None, None),
        (NOW - 1, NOW - 3_600, None),
        (NOW - 1, NOW - 6, NOW + 14),
        (NOW - 1, NOW - 20, None),
        (NOW - 1, NOW + 3_600, None),
    ],
    ids=["PD does not say", "long ago", "just now", "elected by now", "a wrong clock"],
)
def test_leaders_of_a_store_that_has_just_restarted_may_be_elected_here(own, other, until):
    """E6: PD counts them where they were until the elections are over; no pod is deleted before."""
    stores = (store(1, 0, started_at=own), store(2, 45, started_at=other), store(3, 45, started_at=NOW - 86_400))
    view = msgspec.structs.replace(EMPTY, stores=stores)
    assert elected_at(view, 1, NOW, HandoffPolicy()) == (None if until is None else (until, 2))
    # Where TiKV's time-outs are longer, so is this.
    assert elected_at(view, 1, NOW, HandoffPolicy(election_s=7_200.0)) == (
        None if other is None or other > NOW else (other + 7_200, 2)
    )


class Looks:
    """Looks at one PD after another, as the world keeps them, and what they prove together."""

    def __init__(self, **policy):
        self._outside, self.notes, self.policy = Outside(), {}, HandoffPolicy(prove_s=3.0, **policy)
        self.see(EMPTY, NOW - 600)

    def see(self, view, at):
        self._outside.look("demo", view, at)

    def prove(self, view, at, began_with=EMPTY.life):
        self.see(view, at)
        return prove(self.notes, self._outside.pd["demo"], began_with, at, self.policy)


def test_zero_must_last_seen_from_one_pd():
    looks = Looks()
    assert looks.prove(EMPTY, NOW) == NOW + 3
    assert looks.prove(EMPTY, NOW + 2.9) == NOW + 3
    assert looks.prove(EMPTY, NOW + 3) is None


def test_another_member_that_takes_over_proves_nothing_before_its_stores_have_reported():
    """E6: it knows the leaders as the member before it did, and its balancer may have moved some back since."""
    looks, other = Looks(young_pd_s=60.0), msgspec.structs.replace(EMPTY, leader="demo-pd-1")
    looks.prove(EMPTY, NOW)
    at = looks.prove(other, NOW + 2)
    assert at == NOW + 62
    assert "a new leader" in recheck_reason(looks.notes, at, looks.policy)
    assert looks.prove(other, NOW + 61) == at
    assert looks.prove(other, at) is None


@pytest.mark.parametrize("began_with", [EMPTY.life, "demo-pd-1@" + EMPTY.life.partition("@")[2]])
def test_a_member_that_took_over_before_zero_was_seen_counts_as_new_too(began_with):
    """E6: also before this hand-over began, and for a restart that is released after its eviction was proven."""
    looks, other = Looks(young_pd_s=60.0), msgspec.structs.replace(EMPTY, leader="demo-pd-1")
    looks.see(other, NOW + 2)
    assert looks.prove(other, NOW + 5, began_with) == NOW + 62
