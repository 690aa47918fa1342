"""The replay, rule by rule of its contract."""

import json

import pytest

from mooring.core.queue import Settings
from mooring.core.queue.replay import QueueReplay

MOVE = [
    {"kind": "AddLearner", "store": 4},
    {"kind": "PromoteLearner", "store": 4},
    {"kind": "TransferLeader", "from": 1, "to": 4},
    {"kind": "RemovePeer", "store": 1},
]


def move(name, region, *, scheduler="balance-region", to=4, leader=1, **more):
    steps = [
        {"kind": "AddLearner", "store": to},
        {"kind": "PromoteLearner", "store": to},
        {"kind": "TransferLeader", "from": leader, "to": to},
        {"kind": "RemovePeer", "store": leader},
    ]
    return {
        "id": name,
        "scheduler": scheduler,
        "regions": [region],
        "leader": leader,
        "peers": [1, 2, 3],
        "steps": steps,
        **more,
    }


def transfer(name, region, a, b, **more):
    return {"id": name, "scheduler": "balance-leader", "regions": [region], "leader": a, "peers": [a, b],
            "steps": [{"kind": "TransferLeader", "from": a, "to": b}], **more}  # fmt: skip


class Player:
    def __init__(self, settings=None):
        self.remarks = []
        self.replay = QueueReplay(settings, self.remarks.append)
        self.at = 0.0

    def __call__(self, do, at=None, **rest):
        self.at = self.at if at is None else at
        out = self.replay.line(json.dumps({"at": self.at, "do": do, **rest}))
        return [
            (e["event"], e["id"], e["reason"]) if "reason" in e else (e["event"], e["id"])
            for e in out
            if e["event"] != "state"
        ]

    def state(self):
        (out,) = self.replay.line(json.dumps({"at": self.at, "do": "state"}))
        return out


@pytest.fixture
def play():
    return Player()


def test_the_example_of_the_contract(play):
    """T2: the example operator costs its leader's store 8 and the receiving store 10, so two fit and the third waits."""
    assert play("submit", operator=move("a", 7, timeout=600)) == [("accepted", "a"), ("promoted", "a")]
    assert play("submit", operator=move("b", 8)) == [("accepted", "b"), ("promoted", "b")]
    assert play("submit", operator=move("c", 9)) == [("accepted", "c")]
    assert play.state() == {
        "at": 0.0,
        "event": "state",
        "running": ["a", "b"],
        "waiting": ["c"],
        "cost": {"1": 16, "4": 20},
        "why": {"c": {"store": "1", "used": 16, "reserved": 0, "needs": 8, "limit": 20, "blocked_by": ["a", "b"]}},
    }


def test_cost_of_each_step(play):
    """T2: every step kind has the design's cost, summed per store with the leader as it then is."""
    steps = [
        {"kind": "TransferLeader", "from": 1, "to": 2},
        {"kind": "AddPeer", "store": 4},  # the leader is 2 by now
        {"kind": "SplitRegion"},
    ]
    play(
        "submit",
        operator={"id": "a", "scheduler": "s", "regions": [1], "leader": 1, "peers": [1, 2, 3], "steps": steps},
    )
    assert play.state()["cost"] == {"1": 2, "2": 8, "3": 1, "4": 8}
    merge = {
        "id": "m",
        "scheduler": "s",
        "regions": [5, 6],
        "leader": 9,
        "peers": [9, 10],
        "steps": [{"kind": "MergeRegion"}],
    }
    play("submit", operator=merge)
    assert play.state()["cost"] == {"1": 2, "2": 8, "3": 1, "4": 8, "9": 3, "10": 2}


def test_a_later_operator_on_the_same_region(play):
    """T6: a region is claimed by one operator, waiting or running; a merge claims all it names; the end frees them."""
    merge = {
        "id": "m",
        "scheduler": "s",
        "regions": [5, 6],
        "leader": 1,
        "peers": [1],
        "steps": [{"kind": "MergeRegion"}],
    }
    play("submit", operator=merge)
    assert play("submit", operator=transfer("x", 6, 1, 2)) == [("rejected", "x", "region-busy")]
    assert play("finish", id="m") == [("finished", "m")]
    assert play("submit", operator=transfer("x", 6, 1, 2)) == [("accepted", "x"), ("promoted", "x")]


def test_order_of_the_checks(play):
    """The first check that fails is the reason: invalid, region-busy, store-paused, never-fits, too-many-waiting."""
    play("configure", config={"StoreMaxScheduleCost": {"5": 0, "6": 9}, "MaxWaitingOperator": 0})
    play("configure", config={"SchedulerMaxWaitingOperator": {"first": 1}})
    play("submit", operator=transfer("a", 7, 1, 2, scheduler="first"))
    paused_small = {
        "id": "x",
        "scheduler": "s",
        "regions": [7],
        "leader": 5,
        "peers": [5, 6],
        "steps": [{"kind": "AddPeer", "store": 6}, {"kind": "AddPeer", "store": 6}],
    }
    assert play("submit", operator={**paused_small, "id": "a"}) == [("rejected", "a", "invalid")]
    assert play("submit", operator=paused_small) == [("rejected", "x", "region-busy")]
    assert play("submit", operator={**paused_small, "regions": [8]}) == [("rejected", "x", "store-paused")]
    assert play("submit", operator={**paused_small, "regions": [8], "leader": 1}) == [("rejected", "x", "never-fits")]
    assert play("submit", operator=transfer("x", 8, 1, 2)) == [("rejected", "x", "too-many-waiting")]


def test_the_cap_counts_those_waiting(play):
    """T5: at most three wait per scheduler; promotion frees a place; another scheduler is not held up."""
    for n in range(5):
        play("submit", operator=move(f"a{n}", n))
    assert play("submit", operator=move("a5", 5)) == [("rejected", "a5", "too-many-waiting")]
    assert play("submit", operator=move("b", 6, scheduler="replica")) == [("accepted", "b")]
    assert play("finish", id="a0") == [("finished", "a0"), ("promoted", "a2")]
    assert play("submit", operator=move("a5", 5)) == [("accepted", "a5")]


@pytest.mark.parametrize(
    ("cap", "said"),
    [
        (1, [("accepted", "a"), ("promoted", "a")]),
        (0, [("rejected", "a", "too-many-waiting")]),
        (None, [("accepted", "a"), ("promoted", "a")]),
    ],
)
def test_caps_of_one_zero_and_none(cap, said):
    """T5: a cap of 1 works, 0 disables, null is no cap."""
    assert Player(Settings(max_waiting_operator=cap))("submit", operator=transfer("a", 1, 1, 2)) == said


def test_time_outs_come_first(play):
    """T7: what is due ends first, by due time then id, stamped with the line's time; then a pass; then the action."""
    play("submit", operator=move("b", 1, timeout=10))
    play("submit", operator=move("a", 2, timeout=10))
    play("submit", operator=move("c", 3))
    out = [
        json.loads(json.dumps(e))
        for e in play.replay.line(json.dumps({"at": 10, "do": "submit", "operator": move("d", 1)}))
    ]
    assert out == [
        {"at": 10, "event": "timeout", "id": "a"},
        {"at": 10, "event": "timeout", "id": "b"},
        {"at": 10, "event": "promoted", "id": "c"},
        {"at": 10, "event": "accepted", "id": "d"},
        {"at": 10, "event": "promoted", "id": "d"},
    ]


def test_an_id_that_comes_again_at_the_same_moment(play):
    """T7: an id is free once its operator ended, in the same moment too; only the one that runs is timed."""
    play("submit", operator=transfer("a", 1, 1, 2, timeout=5))
    play("cancel", id="a")
    assert play("submit", operator=transfer("a", 1, 1, 2, timeout=5)) == [("accepted", "a"), ("promoted", "a")]
    assert play("tick", at=5.0) == [("timeout", "a")]
    assert play("tick", at=6.0) == []


@pytest.mark.parametrize(
    ("steps", "seconds"), [(MOVE, 780), ([{"kind": "MergeRegion"}], 600), ([{"kind": "SplitRegion"}], 60)]
)
def test_the_time_out_of_steps(play, steps, seconds):
    """`timeout` unset is the sum of the steps': 600 s for AddPeer, AddLearner, MergeRegion, 60 s for the others."""
    play("submit", operator={"id": "a", "scheduler": "s", "regions": [1], "leader": 1, "peers": [1], "steps": steps})
    assert play("tick", at=seconds - 0.5) == []
    assert play("tick", at=seconds) == [("timeout", "a")]


def test_a_batch_queues_all_then_one_pass(play):
    """Each of a batch has its own result, results first; those beyond the cap are rejected, the prefix stays."""
    batch = [
        transfer("a", 1, 1, 2),
        {"id": "bad", "scheduler": "s"},
        "garbage",
        transfer("b", 2, 1, 2),
        transfer("c", 3, 3, 4),
        transfer("d", 4, 5, 6),
        transfer("e", 1, 5, 6),
    ]
    out = play.replay.line(json.dumps({"at": 0, "do": "submit-batch", "operators": batch}))
    assert [(e["event"], e["id"], e.get("reason")) for e in out] == [
        ("accepted", "a", None),
        ("rejected", "bad", "invalid"),
        ("rejected", None, "invalid"),
        ("accepted", "b", None),
        ("accepted", "c", None),
        ("rejected", "d", "too-many-waiting"),
        ("rejected", "e", "region-busy"),
        ("promoted", "a", None),
        ("promoted", "b", None),
        ("promoted", "c", None),
    ]


def test_passing_only_without_conflict(play):
    """T4: behind a waiting one, an operator passes when used + waiting ahead + its own fits on all its stores."""
    for n in range(3):
        play("submit", operator=move(f"a{n}", n))  # a2 waits: store 1 has 16 + 8 > 20
    assert play("submit", operator=transfer("same", 10, 1, 2)) == [("accepted", "same")]
    assert play("submit", operator=transfer("other", 11, 2, 3)) == [("accepted", "other"), ("promoted", "other")]
    why = play.state()["why"]["same"]
    assert why == {"store": "1", "used": 16, "reserved": 8, "needs": 1, "limit": 20, "blocked_by": ["a0", "a1", "a2"]}


def test_limits_change_while_running(play):
    """T8: lowered to where it never fits: canceled; 0: paused, waiting canceled, running go on; raised: promoted."""
    for n in range(3):
        play("submit", operator=move(f"a{n}", n))
    assert play("configure", config={"MaxScheduleCost": 9}) == [("canceled", "a2", "never-fits")]
    assert play.state()["running"] == ["a0", "a1"]
    play("configure", config={"MaxScheduleCost": 20})
    play("submit", operator=move("a3", 3))
    assert play("configure", config={"StoreMaxScheduleCost": {"4": 0}}) == [("canceled", "a3", "store-paused")]
    assert play("submit", operator=move("a4", 4)) == [("rejected", "a4", "store-paused")]
    assert play("configure", config={"StoreMaxScheduleCost": {}, "MaxScheduleCost": None}) == []
    assert play("submit", operator=move("a4", 4)) == [("accepted", "a4"), ("promoted", "a4")]


def test_configure_replaces_each_key_whole(play):
    """A key that is named is replaced whole, others stay; step costs hold for those submitted from then on."""
    play("configure", config={"StoreMaxScheduleCost": {"1": 0}})
    play("configure", config={"StoreMaxScheduleCost": {"2": 0}})
    play("submit", operator=transfer("a", 1, 1, 3))
    play("configure", config={"OperatorStepCost": {"TransferLeader": {"from": 4, "to": 0}}})
    play("submit", operator=transfer("b", 2, 1, 4))
    assert play.state()["cost"] == {"1": 5, "3": 1, "4": 1}, "an affected store is charged at least 1"
    assert play("submit", operator=transfer("c", 3, 1, 2)) == [("rejected", "c", "store-paused")]
    play("configure", config={"OperatorStepCost": {"MergeRegion": {"peer": 2, "leader": 1}}})
    play("submit", operator=transfer("d", 4, 1, 4))
    assert play.state()["cost"]["1"] == 6, "what the new table leaves out has its default again"


def test_ends_that_make_no_sense(play):
    """T7: finish, fail or cancel of nobody is `unknown`, finish or fail of a waiting one `not-running`; nothing changes."""
    for n in range(3):
        play("submit", operator=move(f"a{n}", n))
    before = play.state()
    assert play("finish", id="x") == [("ignored", "x", "unknown")]
    assert play("fail", id="x") == [("ignored", "x", "unknown")]
    assert play("cancel", id="x") == [("ignored", "x", "unknown")]
    assert play("finish", id="a2") == [("ignored", "a2", "not-running")]
    assert play("fail", id="a2") == [("ignored", "a2", "not-running")]
    assert play.state() == before
    assert play("cancel", id="a2") == [("canceled", "a2")]
    assert play("fail", id="a0") == [("failed", "a0")]
    assert play("finish", id="a0") == [("ignored", "a0", "unknown")], "released once"


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "[]",
        "{}",
        '"at"',
        "\xff",
        b"\xff\xfe",
        '{"at": "soon", "do": "tick"}',
        '{"at": true, "do": "tick"}',
        '{"at": 1e999, "do": "tick"}',
        '{"at": 1' + "0" * 500 + ', "do": "tick"}',
        '{"at": 1}',
        '{"at": 1, "do": "explode"}',
        '{"at": 1, "do": ["submit"]}',
        '{"at": 1, "do": "finish"}',
        '{"at": 1, "do": "finish", "id": 7}',
        '{"at": 1, "do": "submit"}',
        '{"at": 1, "do": "submit-batch", "operators": {}}',
        '{"at": 1, "do": "configure"}',
        '{"at": 1, "do": "configure", "config": {"MaxScheduleCost": -1}}',
        '{"at": 1, "do": "configure", "config": {"MaxScheduleCost": 5.5}}',
        '{"at": 1, "do": "configure", "config": {"MaxScheduleCost": true}}',
        '{"at": 1, "do": "configure", "config": {"MaxScheduleCost": 5, "Unknown": 1}}',
        '{"at": 1, "do": "configure", "config": {"OperatorStepCost": {"Fly": {"to": 1}}}}',
        '{"at": 1, "do": "configure", "config": {"OperatorStepCost": {"AddPeer": {"pilot": 1}}}}',
        '{"at": 1, "do": "configure", "config": {"OperatorStepCost": {"AddPeer": {"to": -1}}}}',
        '{"at": 1, "do": "configure", "config": {"StoreMaxScheduleCost": {"1": "many"}}}',
        '{"at": 1, "do": "configure", "config": {"StoreMaxScheduleCost": null}}',
        "[" * 5000,
    ],
)
def test_lines_that_cannot_be_read(play, line):
    """Garbage is ignored with reason `invalid`, said in words besides, and changes nothing."""
    play("submit", operator=move("a", 1))
    before = play.state()
    (out,) = play.replay.line(line)
    assert (out["event"], out["reason"]) == ("ignored", "invalid")
    assert play.remarks
    play.at = 1.0
    assert play.state() == {**before, "at": 1.0}


@pytest.mark.parametrize(
    "change",
    [
        {"id": ""},
        {"scheduler": 3},
        {"regions": []},
        {"regions": ["7"]},
        {"regions": None},
        {"leader": None},
        {"leader": "1"},
        {"leader": -1},
        {"steps": []},
        {"steps": "AddPeer"},
        {"steps": [{"kind": "Fly", "store": 1}]},
        {"steps": [{"kind": ["AddPeer"], "store": 1}]},
        {"steps": [{"kind": "EvictLeaders", "store": 1}]},
        {"steps": [{"kind": "AddPeer"}]},
        {"steps": [{"kind": "AddPeer", "store": 1.5}]},
        {"steps": [{"kind": "TransferLeader", "from": 1}]},
        {"steps": [{"kind": "MergeRegion"}], "peers": []},
        {"steps": [None]},
        {"timeout": -1},
        {"timeout": "long"},
    ],
)
def test_operators_that_cannot_be_read(play, change):
    """A bad operator is rejected as `invalid`; its id stays free and nothing changes."""
    bad = {**move("a", 1), **change}
    (out,) = play.replay.line(json.dumps({"at": 0, "do": "submit", "operator": bad}))
    assert (out["event"], out["reason"]) == ("rejected", "invalid")
    assert play.state()["running"] == []
    assert play("submit", operator=move("a", 1)) == [("accepted", "a"), ("promoted", "a")]


def test_time_going_backwards(play):
    """The line is ignored with reason `time`; the next one in order is served."""
    play("tick", at=5.0)
    (out,) = play.replay.line(json.dumps({"at": 4.0, "do": "submit", "operator": move("a", 1)}))
    assert out == {"at": 4.0, "event": "ignored", "id": "a", "reason": "time"}
    assert play("submit", at=5.0, operator=move("a", 1)) == [("accepted", "a"), ("promoted", "a")]


def test_why_names_at_most_twenty(play):
    """T11: numeric order decides which store is named; beyond twenty ids only their number is told."""
    play("configure", config={"MaxWaitingOperator": None})
    for n in range(20):
        play("submit", operator=transfer(f"r{n}", n, 10, 9))
    for n in range(20, 26):
        play("submit", operator=transfer(f"w{n}", n, 10, 9))
    why = play.state()["why"]
    assert why["w20"] == {
        "store": "9",
        "used": 20,
        "reserved": 0,
        "needs": 1,
        "limit": 20,
        "blocked_by": [f"r{n}" for n in range(20)],
    }
    assert why["w25"]["reserved"] == 5
    assert (len(why["w25"]["blocked_by"]), why["w25"]["more"]) == (20, 5)


def test_blank_lines_are_nothing(play):
    """An empty line at the end of a file is no event."""
    assert play.replay.line(b"\n") == []
