"""The ledger of one owner against the plainest model of it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.capabilities.mix.slots import SlotLedger, SlotPlace
from mooring.capabilities.mix.targets import Mode, Share, Target
from mooring.core.model.capacity import NodeClass

MAJORITY = Target(Mode.MAJORITY_IN_ON_DEMAND)
TARGETS = [
    MAJORITY,
    Target(Mode.ALL_IN_SPOT),
    Target(Mode.ALL_IN_ON_DEMAND),
    Target(Mode.CUSTOM, Share(3)),
    Target(Mode.CUSTOM, Share(30, percent=True)),
]


def fill(ledger: SlotLedger, target: Target, replicas: int) -> None:
    while len(ledger) < replicas:
        slot = ledger.lowest_free()
        on_demand = ledger.choose(slot, target, replicas) is NodeClass.ON_DEMAND
        ledger.put(f"{slot}-{len(ledger)}", SlotPlace(slot, on_demand))


@settings(max_examples=150, deadline=None)
@given(
    moves=st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 12), st.one_of(st.none(), st.integers(0, 9)), st.booleans()),
            st.tuples(st.just("drop"), st.integers(0, 12)),
        ),
        max_size=40,
    )
)
def test_ledger_equals_a_plain_count(moves):
    """M4: after any history, the lowest free slot and the counts are what counting anew gives."""
    ledger, model = SlotLedger(), {}
    for move in moves:
        holder = str(move[1])
        if move[0] == "put":
            model[holder] = SlotPlace(move[2], move[3])
            ledger.put(holder, model[holder])
        else:
            model.pop(holder, None)
            ledger.drop(holder)
        held = {place.slot for place in model.values()} - {None}
        assert ledger.lowest_free() == next(i for i in range(100) if i not in held)
        assert ledger.on_demand == sum(place.on_demand for place in model.values())
        assert set(ledger.held()) == held
        fresh = SlotLedger()
        for name, place in model.items():
            fresh.put(name, place)
        for target in TARGETS:
            for slot in (ledger.lowest_free(), 3):
                assert ledger.choose(slot, target, 8) is fresh.choose(slot, target, 8)


@settings(max_examples=150, deadline=None)
@given(
    target=st.sampled_from(TARGETS),
    steps=st.lists(st.tuples(st.integers(0, 15), st.lists(st.integers(0, 14), max_size=4)), max_size=20),
)
def test_scaling_and_losses_keep_the_split(target, steps):
    """M4: scale up and down and lose pods in any order: refilled, there are exactly T(R) on-demand replicas."""
    ledger = SlotLedger()
    for replicas, lost in steps:
        while len(ledger) > replicas:
            top = max(ledger.held())
            for holder in ledger.held()[top]:
                ledger.drop(holder)
        for slot in lost:
            for holder in ledger.held().get(slot, []):
                ledger.drop(holder)
        fill(ledger, target, replicas)
        assert ledger.on_demand == target.on_demand(replicas)
        assert sorted(ledger.held()) == list(range(replicas))


@settings(max_examples=150, deadline=None)
@given(
    old=st.sampled_from(TARGETS),
    new=st.sampled_from(TARGETS),
    replicas=st.integers(1, 12),
    lost=st.sets(st.integers(0, 11)),
)
def test_a_changed_mode_is_mended_by_whoever_comes_next(old, new, replicas, lost):
    """M5: after a mode change, each new pod brings the total closer to T(R); it is never overshot."""
    ledger = SlotLedger()
    fill(ledger, old, replicas)
    for slot in lost & set(ledger.held()):
        for holder in ledger.held()[slot]:
            ledger.drop(holder)
    left, missing = ledger.on_demand, replicas - len(ledger)
    fill(ledger, new, replicas)
    wanted = new.on_demand(replicas)
    assert ledger.on_demand == min(max(wanted, left), left + missing)


def test_any_spot_pod_may_go_for_an_on_demand_one():
    """M5: 3 spot and 2 on-demand, wanted 2 and 3: whichever spot pod goes, its successor is on-demand."""
    for victim in (2, 3, 4):
        ledger = SlotLedger()
        fill(ledger, Target(Mode.CUSTOM, Share(2)), 5)
        ledger.drop(f"{victim}-{victim}")
        fill(ledger, Target(Mode.CUSTOM, Share(3)), 5)
        assert ledger.on_demand == 3


def test_a_slot_given_twice_heals():
    """A new leader has no reservations and may give a slot twice: the total still comes out right."""
    ledger = SlotLedger()
    ledger.put("a", SlotPlace(0, on_demand=True))
    ledger.put("b", SlotPlace(0, on_demand=True))
    fill(ledger, MAJORITY, 5)
    assert ledger.on_demand == MAJORITY.on_demand(5)


def test_pods_older_than_us_fill_the_count():
    """M5: five pods without a slot, all on spot nodes: the next ones are on-demand until the floor stands."""
    ledger = SlotLedger()
    for i in range(3):
        ledger.put(f"old-{i}", SlotPlace(None, on_demand=False))
    fill(ledger, MAJORITY, 5)
    assert ledger.on_demand == 2
    all_safe = SlotLedger()
    for i in range(4):
        all_safe.put(f"old-{i}", SlotPlace(None, on_demand=True))
    fill(all_safe, MAJORITY, 5)
    assert all_safe.on_demand == 4
