"""The queue's promises beyond the replay: every kind of target, facts, parking, deadlines, phases."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.core.model.reasons import Reason
from mooring.core.queue import Queue, Settings, why
from mooring.core.queue.audit import audit
from mooring.core.queue.config import REGION_SCHEDULERS, QueueConfigError, parse
from mooring.process.assemble import queue_settings
from mooring.process.settings.config import Config
from tests.core.queue.build import op, plain


@pytest.fixture
def queue():
    queue = Queue(queue_settings(Config()))
    queue.tick(0.0)
    return queue


def promoted(events):
    return [event[1] for event in plain(events) if event[0] == "promoted"]


def test_every_operator_enters_through_waiting(queue):
    """T1: also one that fits at once is accepted before it is promoted, in one answer."""
    assert plain(queue.submit(op("a", {"fleet": 1}))) == [("accepted", "a"), ("promoted", "a")]
    assert "a" in queue and "b" not in queue


@pytest.mark.parametrize(
    ("written", "caps"),
    [
        ({}, {"balance-leader": 3, "replica": 3, "handoff": 10, "spot": None}),
        ({"MaxWaitingOperator": 0}, {"balance-leader": 0, "replica": 0, "handoff": 10, "spot": None}),
        (
            {"SchedulerMaxWaitingOperator": {"replica": 10}},
            {"balance-leader": 3, "replica": 10, "handoff": 10, "spot": None},
        ),
        (
            {"MaxWaitingOperator": 7, "SchedulerMaxWaitingOperator": {"handoff": 1}},
            {"balance-leader": 7, "replica": 7, "handoff": 1, "spot": None},
        ),
    ],
)
def test_the_cap_is_that_of_the_region_schedulers(written, caps):
    """T5: live as in a replay. `MaxWaitingOperator` caps the design's schedulers and nobody else; an entry of
    `SchedulerMaxWaitingOperator` changes what it names and nothing else."""
    live = queue_settings(Config(queue=written))
    assert {source: live.cap(source) for source in caps} == caps
    replayed = parse(written)
    region = [source for source in caps if source in REGION_SCHEDULERS]
    assert [replayed.cap(source) for source in region] == [caps[source] for source in region]


def test_a_limit_for_every_store_of_a_cluster():
    """T8, T12: `tidb/demo/*` is the limit of that cluster alone; a store named whole beats it, and it beats a bare id."""
    limits = {"tidb/demo/*": 5, "tidb/demo/2": 7, "3": 9}
    settings = queue_settings(Config(queue={"StoreMaxScheduleCost": limits}))
    stores = ("store/tidb/demo/1", "store/tidb/demo/2", "store/tidb/demo/3", "store/tidb/other/3", "store/tidb/other/1")
    assert [settings.limit(store) for store in stores] == [5, 7, 5, 9, 20]


def test_two_restarts_in_the_same_second(queue):
    """T4, example 1: the second waits while the first evicts, is away, and comes back; `why` names it."""
    evict = lambda n: op(
        f"evict-{n}",
        {f"store/demo/{n}": 10, "evicting/tidb/demo": 1},
        phases=({"evicting/tidb/demo": 1},),
        source="handoff",
        subject=f"store/demo/{n}",
    )
    assert promoted(queue.submit_batch([evict(0), evict(1)])) == ["evict-0"]
    answer = why(queue, "evict-1")
    assert (answer.target, answer.blocked_by, answer.reason) == ("evicting/tidb/demo", ("evict-0",), Reason.TARGET_FULL)
    assert answer.sum() == "needs 1 · used 1 (op evict-0: 1) · reserved 0 · limit 1 → 1 missing"
    assert promoted(queue.advance("evict-0", 1)) == []
    assert queue.used("store/demo/0") == 0
    restart = op("restart-0", {"tikv/tidb/demo": 1, "node/n1": 4}, source="handoff", subject="pod/tidb/demo-tikv-0")
    assert promoted(queue.submit(restart)) == ["restart-0"]
    # The pod is gone: a fact, but the running restart answers for it.
    queue.set_fact("tikv/tidb/demo", "pod/tidb/demo-tikv-0", 1, "demo-tikv-0 is not Ready")
    assert queue.used("tikv/tidb/demo") == 1
    queue.clear_fact("tikv/tidb/demo", "pod/tidb/demo-tikv-0")
    queue.finish("restart-0")
    assert promoted(queue.finish("evict-0")) == ["evict-1"]


def test_behind_a_move_and_an_eviction(queue):
    """T4, example 4: 10 of 20 used and 10 reserved on store 4: the third starts when one ends, not before."""
    queue.submit(op("evict", {"store/demo/4": 10, "evicting/tidb/demo": 1}, source="handoff"))
    queue.submit(op("busy", {"store/demo/1": 20}, source="replica"))
    queue.submit(op("ahead", {"store/demo/4": 10, "store/demo/1": 8}, source="balance-region"))
    assert promoted(queue.submit(op("move", {"store/demo/4": 10}, source="balance-region"))) == []
    answer = queue.why("move")
    assert (answer.used, answer.reserved, answer.needs, answer.limit) == (10, 10, 10, 20)
    assert (answer.reason, answer.blocked_by) == (Reason.BEHIND, ("evict", "ahead"))
    assert answer.line() == "op move is waiting for store/demo/4: behind op evict, op ahead"
    assert promoted(queue.finish("evict")) == ["move"]
    assert promoted(queue.finish("busy")) == ["ahead"]


def test_a_broken_pod_stops_its_workload_only(queue):
    """Example 2: parked on a fact of another pod; cleared, it runs; the broken pod itself may be moved at once."""
    target = "workload/ns/Deployment/web"
    queue.set_fact(target, "pod/ns/web-2", 1, "web-2 is not Ready")
    assert plain(queue.submit(op("m1", {target: 1, "node/n1": 4}, source="mix", subject="pod/ns/web-1"))) == [
        ("accepted", "m1")
    ]
    answer = why(queue, "m1")
    assert (answer.reason, answer.parked, answer.facts[0].detail) == (Reason.FACT, True, "web-2 is not Ready")
    assert answer.line() == "op m1 is waiting for workload/ns/Deployment/web: web-2 is not Ready"
    assert promoted(queue.submit(op("m2", {target: 1}, source="mix", subject="pod/ns/web-2"))) == ["m2"], "the cure"
    assert queue.used(target) == 1, "charged once"
    queue.finish("m2")
    assert promoted(queue.clear_fact(target, "pod/ns/web-2")) == ["m1"]


def test_a_fact_that_leaves_exactly_enough_room_is_not_the_reason(queue):
    """T4: `why` names the target whose fact stands in the way, not one where there is room for both."""
    queue.set_fact("store/demo/1", "region/demo/9", 10, "PD moves it")
    queue.set_fact("workload/ns/Deployment/web", "pod/ns/web-2", 1, "web-2 is not Ready")
    queue.submit(op("m1", {"store/demo/1": 10, "workload/ns/Deployment/web": 1}, subject="pod/ns/web-1"))
    assert why(queue, "m1").target == "workload/ns/Deployment/web"


def test_parked_operators_reserve_nothing_and_do_not_count(queue):
    """One team's broken pods stop nobody else: not on shared targets, not by the source's cap."""
    queue.set_fact("workload/ns/d/a", "", 1, "a replica of a is missing")
    for n in range(30):
        queue.submit(op(f"a{n}", {"workload/ns/d/a": 1, "node/n1": 4}, source="mix"))
    assert queue.waiting_of("mix") == 0
    assert promoted(queue.submit(op("b", {"workload/ns/d/b": 1, "node/n1": 4}, source="mix"))) == ["b"]
    assert promoted(queue.clear_fact("workload/ns/d/a", "")) == ["a0"]
    assert queue.waiting_of("mix") == 29


def test_our_own_disturbance_parks_nobody(queue):
    """What a running operator breaks is its own to answer for: those behind keep their place and their reservation."""
    target = "workload/ns/d/a"
    queue.submit(op("first", {target: 1}, subject="pod/a1", source="mix"))
    queue.submit(op("second", {target: 1}, subject="pod/a2", source="mix"))
    queue.set_fact(target, "pod/a1", 1, "a1 is gone")
    assert not queue.records.by_id["second"].parked
    queue.fail("first")
    assert queue.records.by_id["second"].parked, "now the fact stands alone"


def test_facts_may_exceed_a_limit_and_promotions_do_not(queue):
    """T3: facts take a target above its limit; nothing is promoted onto it, and what runs goes on."""
    queue.submit(op("r", {"tikv/ns/c": 1}, subject="pod/0"))
    queue.set_fact("tikv/ns/c", "pod/1", 1)
    queue.set_fact("tikv/ns/c", "pod/2", 1)
    assert queue.used("tikv/ns/c") == 3
    assert queue.is_running("r")
    assert promoted(queue.submit(op("x", {"tikv/ns/c": 1}, subject="pod/3"))) == []
    assert promoted(queue.submit(op("cure", {"tikv/ns/c": 1}, subject="pod/2"))) == ["cure"]


def test_deadlines_come_first_and_stop_nothing(queue):
    """Those with a deadline go before those without, the earliest first; nothing running is stopped."""
    queue.submit(op("run", {"node/n": 20}, source="mix"))
    queue.submit(op("house", {"node/n": 20}, source="mix"))
    queue.submit(op("late", {"node/n": 20}, source="spot", deadline=200.0))
    queue.submit(op("soon", {"node/n": 20}, source="spot", deadline=100.0))
    assert queue.waiting == ("soon", "late", "house")
    assert queue.running == ("run",)
    assert promoted(queue.finish("run")) == ["soon"]


def test_a_cost_falls_in_phases_and_is_released_once(queue):
    """T2: each phase releases once; going back or skipping beyond the last is ignored; the end releases the rest."""
    queue.submit(op("a", {"1": 10, "evicting/c": 1}, phases=({"evicting/c": 1}, {})))
    assert plain(queue.advance("a", 1)) == [("advanced", "a", 1)]
    assert (queue.used("1"), queue.used("evicting/c")) == (0, 1)
    assert plain(queue.advance("a", 1)) == [("ignored", "a", Reason.INVALID)]
    assert plain(queue.advance("a", 0)) == [("ignored", "a", Reason.INVALID)]
    assert plain(queue.advance("a", 3)) == [("ignored", "a", Reason.INVALID)]
    queue.advance("a", 2)
    queue.finish("a")
    assert queue.used("evicting/c") == 0
    assert audit(queue) == []


def test_a_waiting_cost_may_fall_too(queue):
    """A pod that is lost anyway no longer needs its workload's room: it keeps its place and goes."""
    queue.submit(op("a", {"workload/w": 1}, subject="pod/a"))
    queue.submit(op("b", {"workload/w": 1}, subject="pod/b", phases=({},)))
    assert plain(queue.advance("b", 1)) == [("advanced", "b", 1), ("promoted", "b")]


def test_a_new_leader_takes_up_what_runs():
    """T1: what marks say runs is running at once, without a check of room, and charged."""
    queue = Queue(queue_settings(Config()))
    queue.tick(0.0)
    begun = op("old", {"tikv/c": 1}, subject="pod/0", phases=({},))
    assert plain(queue.resume(begun)) == [("promoted", "old")]
    assert plain(queue.resume(begun)) == [("rejected", "old", Reason.INVALID)]
    assert plain(queue.resume(op("over", {"tikv/c": 1}, subject="pod/1"))) == [("promoted", "over")]
    assert queue.used("tikv/c") == 2
    assert plain(queue.submit(op("new", {"tikv/c": 1}))) == [("accepted", "new")]


def test_targets_that_are_none(queue):
    """A node that is interrupted or that we cordoned is no target: it is to be emptied."""
    for n in range(6):
        queue.submit(op(f"a{n}", {"node/n7": 4}, source="spot"))
    assert len(queue.running) == 5
    assert promoted(queue.set_limit("node/n7", None)) == ["a5"]
    queue.reset_limit("node/n7")
    assert queue.limit("node/n7") == 20
    assert promoted(queue.submit(op("x", {"node/n7": 1}, source="spot"))) == []


def test_a_paused_target(queue):
    """T8: a limit of 0 rejects and cancels with `target-paused`, running ones go on; a negative one is refused."""
    queue.submit(op("run", {"fleet": 4}))
    queue.submit(op("wait", {"fleet": 1}))
    assert plain(queue.set_limit("fleet", 0)) == [("canceled", "wait", Reason.TARGET_PAUSED)]
    assert queue.is_running("run")
    assert plain(queue.submit(op("more", {"fleet": 1}))) == [("rejected", "more", Reason.TARGET_PAUSED)]
    assert plain(queue.set_limit("fleet", -1)) == [("ignored", "", Reason.INVALID)]
    assert queue.limit("fleet") == 0


def test_subjects_are_claimed_like_regions(queue):
    """T6: one operator per subject; the reason says which kind of thing is busy."""
    queue.submit(op("a", {"fleet": 1}, subject="pod/x"))
    assert plain(queue.submit(op("b", {"fleet": 1}, subject="pod/x"))) == [("rejected", "b", Reason.SUBJECT_BUSY)]
    queue.submit(op("m", {"1": 1}, subject="region/1", claims=("region/1", "region/2")))
    assert plain(queue.submit(op("c", {"1": 1}, subject="region/2"))) == [("rejected", "c", Reason.REGION_BUSY)]


@pytest.mark.parametrize(
    "bad",
    [
        op("", {"1": 1}),
        op("a", {"1": -1}),
        op("a", {"1": 1.5}),
        op("a", {"1": True}),
        op("a", {"": 1}),
        op("a", {"1": 1}, phases=({"1": 2},)),
        op("a", {"1": 1}, phases=({"2": 1},)),
        op("a", {"1": 1}, timeout_s=-1.0),
        op("a", {"1": 1}, deadline=float("nan")),
        op("a", {"1": 1}, source=""),
    ],
)
def test_operators_that_cannot_be(queue, bad):
    """A negative or broken cost, a cost that rises, a time that is none: `invalid`, and the queue is unchanged."""
    (event,) = queue.submit(bad)
    assert event.reason is Reason.INVALID
    assert event.detail
    assert (queue.running, queue.waiting, queue.used("1")) == ((), (), 0)


def test_live_caps(queue):
    """T5: 3 for the region schedulers, 10 for the others, none for `spot`."""
    assert [queue.settings.cap(s) for s in ("merge", "balance-leader", "handoff", "mix", "spot")] == [
        3,
        3,
        10,
        10,
        None,
    ]


def test_cooldown_bounds_the_rate():
    """T11: with a cooldown the cost stays charged after a success; a failure releases at once."""
    queue = Queue(parse({"CooldownSeconds": 5}))
    queue.tick(0.0)
    queue.submit(op("a", {"1": 20}))
    assert plain(queue.finish("a")) == [("finished", "a", Reason.DONE)]
    queue.submit(op("b", {"1": 20}))
    assert queue.next_due() == 5.0
    assert promoted(queue.tick(4.9)) == []
    assert promoted(queue.tick(5.0)) == ["b"]
    queue.submit(op("c", {"1": 20}))
    assert promoted(queue.fail("b")) == ["c"]
    assert audit(queue) == []


@pytest.mark.parametrize("wrong", [{"CooldownSeconds": -1}, {"CooldownSeconds": True}, {"ReplaceLowerPriority": 1}])
def test_a_setting_that_cannot_be_is_named(wrong):
    """T11: the optional settings are checked as the others are."""
    with pytest.raises(QueueConfigError, match=next(iter(wrong))):
        parse(wrong)


def test_a_higher_priority_replaces_where_allowed():
    """T11: strictly higher replaces what waits or runs on its subject; off, the later one is rejected."""
    plain_queue = Queue()
    plain_queue.submit(op("a", {"1": 1}, subject="region/1"))
    later = op("b", {"1": 1}, subject="region/1", priority=1)
    assert plain(plain_queue.submit(later)) == [("rejected", "b", Reason.REGION_BUSY)]
    queue = Queue(parse({"ReplaceLowerPriority": True}))
    queue.submit(op("a", {"1": 20}, subject="region/1"))
    assert plain(queue.submit(later)) == [("canceled", "a", Reason.REPLACED), ("accepted", "b"), ("promoted", "b")]
    assert plain(queue.submit(op("c", {"1": 1}, subject="region/1", priority=1)))[0][2] is Reason.REGION_BUSY


def test_time_outs_hold_only_where_there_is_one(queue):
    """T7: an operator with a mark has no time-out and keeps its cost until observation ends it."""
    queue.submit(op("marked", {"tikv/c": 1}))
    queue.submit(op("timed", {"1": 1}, timeout_s=60.0))
    assert queue.next_due() == 60.0
    assert plain(queue.tick(1e9)) == [("timeout", "timed", Reason.TIMEOUT)]
    assert queue.is_running("marked")


def test_one_that_is_more_than_its_share_on_two_targets_ends_once():
    """T5: facts on two targets keep it out; when both limits rise at one time, it ends once, and the queue goes on."""
    limits = lambda node: Settings(max_waiting_operator=None, target_limits={"mix": 2, "node": node})
    queue = Queue(limits(1))
    for node in ("node/n1", "node/n2"):
        queue.set_fact(node, "", 1)
    queue.submit(op("a", {"mix": 2, "share/mix/ns": 1}))
    queue.submit(op("b", {"mix": 1, "share/mix/ns": 1, "node/n1": 1, "node/n2": 1}))
    ended = [event for event in plain(queue.configure(limits(5))) if event[0] not in {"accepted", "promoted"}]
    assert [event[1] for event in ended] == ["b"]
    assert audit(queue) == []


def test_a_share_without_what_it_is_a_share_of_is_no_traceback():
    """T2: a later phase keeps the share of a namespace and no longer needs what all of them use, which is full."""
    queue = Queue(Settings(max_waiting_operator=None, target_limits={"mix": 1, "node": 1}))
    queue.submit(op("a", {"mix": 1, "share/mix/one": 1}))
    queue.submit(op("b", {"node/n1": 1}))
    costs = {"share/mix/two": 1, "node/n1": 1}
    queue.submit(op("c", costs | {"mix": 1}, phases=(costs,)))
    assert list(queue.waiting) == ["c"]
    queue.advance("c", 1)
    queue.finish("b")
    assert queue.is_running("c") and queue.used("share/mix/two") == 1
    assert audit(queue) == []


def test_targets_that_come_and_go_are_forgotten(queue):
    """The queue's memory follows what is in it, not what has passed through."""
    for n in range(20_000):
        queue.submit(op(f"a{n}", {f"node/{n}": 1}))
        queue.finish(f"a{n}")
    assert len(queue.lanes) < 5000
    assert not queue.records.by_id


def calls_of(work):
    """How many function calls a piece of work makes: a measure of work that no clock disturbs."""
    count = 0

    def counting(_frame, event, _arg):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("target", ["1", "99"], ids=["behind them all", "beside them all"])
def test_work_does_not_grow_with_the_number_waiting(target):
    """T11: an operator's way through the queue takes as much work with 5,000 waiting as with 50."""
    taken = []
    for waiting in (50, 5000):
        queue = Queue(Settings(max_waiting_operator=None))
        for n in range(waiting + 2):
            queue.submit(op(f"w{n}", {"1": 10}))

        def one_in_one_out(queue=queue):
            queue.submit(op("x", {target: 10}))
            queue.finish(queue.running[0] if target == "1" else "x")

        taken.append(calls_of(one_in_one_out))
    assert taken[0] == taken[1]


# ── Start times: the theorem ──────────────────────────────────────────────────────────────────────────────────────

JOB = st.tuples(
    st.integers(0, 20),  # arrives at
    st.integers(1, 15),  # runs for
    st.dictionaries(st.sampled_from(["1", "2", "3"]), st.integers(1, 20), min_size=1, max_size=3),
)


def starts_in_queue(jobs):
    """Start times in the real queue, where each job ends as long after its start as it says."""
    queue = Queue(Settings(max_waiting_operator=None))
    arrivals = sorted(range(len(jobs)), key=lambda n: (jobs[n][0], n))
    starts, ends = {}, {}
    for now in range(20 + 15 * len(jobs) + 1):
        events = queue.tick(float(now))
        for name in [name for name, end in ends.items() if end == now]:
            events += queue.finish(name)
        for n in (n for n in arrivals if jobs[n][0] == now):
            events += queue.submit(op(str(n), jobs[n][2]))
        for name in promoted(events):
            starts[int(name)] = now
            ends[name] = now + jobs[int(name)][1]
    return starts


def starts_in_line(jobs):
    """Start times when only the head may go."""
    line = sorted(range(len(jobs)), key=lambda n: (jobs[n][0], n))
    starts = {}
    for now in range(20 + 15 * len(jobs) + 1):
        while line and jobs[line[0]][0] <= now:
            head = jobs[line[0]]
            running = [jobs[n] for n, start in starts.items() if start + jobs[n][1] > now]
            if any(sum(r[2].get(s, 0) for r in running) + c > 20 for s, c in head[2].items()):
                break
            starts[line.pop(0)] = now
    return starts


@settings(max_examples=80, deadline=None)
@given(st.lists(JOB, max_size=14))
def test_nobody_starts_later_than_in_plain_order(jobs):
    """T4: each operator starts no later than under strict FIFO, for any costs and durations, and nobody starves."""
    queue, line = starts_in_queue(jobs), starts_in_line(jobs)
    assert queue.keys() == line.keys() == set(range(len(jobs)))
    assert all(queue[n] <= line[n] for n in line)


@settings(max_examples=30, deadline=None)
@given(st.lists(JOB, max_size=20))
def test_equal_inputs_equal_outputs(jobs):
    """The same calls give the same events, whatever happened in another queue."""
    said = []
    for _ in range(2):
        queue = Queue(Settings(max_waiting_operator=None))
        said.append([plain(queue.submit(op(str(n), dict(job[2])))) for n, job in enumerate(jobs)])
    assert said[0] == said[1]
