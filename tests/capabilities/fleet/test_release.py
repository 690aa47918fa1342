"""Between plan and act: stored, exported and tainted is only what was released."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.capabilities.fleet.live.ledger import (
    Decisions,
    InvalidDecisionsError,
    decode_decisions,
    encode_decisions,
    revision_of,
)
from mooring.capabilities.fleet.live.release import (
    MemberChange,
    Released,
    change_operator,
    cluster_now,
    member_changes,
    to_empty,
    write_released,
)
from mooring.capabilities.fleet.live.retire import retire_operator
from mooring.capabilities.fleet.planner.current import Current, Member
from mooring.capabilities.fleet.planner.decide import decide
from tests.capabilities.fleet.fleet_making import address, cluster, limits, m, node, template, view

NOTHING = Released()


def planes(members):
    return [x.address for x in members if x.control_plane]


def table(machines):
    return {x.address: x for x in machines}


def test_a_retiring_worker_is_not_tainted_before_its_node_is_empty():
    """O2: NoExecute is neither stored nor exported until released; then it is both."""
    machines = [m(1), m(2, state="RETIRING"), m(3)]
    current = cluster([1], [2, 3])
    plan = decide(view(machines, current=current))
    assert [x.serial for x in to_empty(current.members, plan, table(machines))] == ["S2"]
    before = cluster_now(current.members, plan, NOTHING, table(machines))
    assert [x.state_taint for x in before] == [None, None, None]
    after = cluster_now(before, plan, Released(emptied=frozenset({address(2)})), table(machines))
    assert after[1].state_taint == ("retiring", "NoExecute")
    written = write_released(template(), after, table(machines))
    assert written["nodes"][1]["taints"] == [
        {"key": "cke.cybozu.com/state", "value": "retiring", "effect": "NoExecute"}
    ]
    assert write_released(template(), before, table(machines))["nodes"][1]["taints"] == []


def test_immediate_taints_first():
    """O2: the mode for sites where disks are wiped a minute after RETIRING."""
    machines = [m(1), m(2, state="RETIRING"), m(3)]
    current = cluster([1], [2, 3])
    plan = decide(view(machines, current=current))
    assert cluster_now(current.members, plan, Released(immediate=True), table(machines))[1].state_taint == (
        "retiring",
        "NoExecute",
    )


def test_a_taint_is_lifted_at_once():
    """O2: healthy again needs nobody's leave; neither does going on from retiring to retired."""
    machines = [m(1), m(2), m(3, state="RETIRED")]
    current = cluster([1], [2, 3], {2: "retiring", 3: "retiring"})
    plan = decide(view(machines, current=current))
    now = cluster_now(current.members, plan, NOTHING, table(machines))
    assert [x.state_taint for x in now[1:]] == [None, ("retired", "NoExecute")]
    assert to_empty(current.members, plan, table(machines)) == ()


def test_new_workers_join_and_vanished_ones_leave_at_once():
    """O1: neither disturbs anybody."""
    machines = [m(1), m(3), m(4)]
    current = cluster([1], [2, 3])
    plan = decide(view(machines, current=current, constraints=limits(1, 2)))
    assert [x.address for x in cluster_now(current.members, plan, NOTHING, table(machines))] == [
        address(n) for n in (1, 3, 4)
    ]


def test_a_worker_whose_machine_is_there_leaves_in_two_steps():
    """O2: decided out it is stored as leaving, no longer counted, still exported; emptied it is gone."""
    machines = [m(1, rack=1), m(2, rack=2), m(3, rack=3), m(4, rack=4, state="UNHEALTHY"), m(5, rack=5)]
    constraints = limits(1, 1, 2)
    members = cluster([1, 2], [4, 5]).members
    plan = decide(view(machines, current=Current(members), constraints=constraints))
    (change,) = member_changes(members, plan)
    now = cluster_now(members, plan, Released(control_plane=change), table(machines), 2)
    assert [(x.address, x.leaving) for x in now if not x.control_plane] == [
        (address(2), False),
        (address(4), True),
        (address(5), False),
    ]
    assert len(write_released(template(), now, table(machines))["nodes"]) == 4
    again = decide(
        view(
            machines, current=decode_decisions(encode_decisions(Decisions("r", now))).current(), constraints=constraints
        )
    )
    assert again.action == "none" and len(again.workers) == 2
    assert [x.serial for x in to_empty(now, again, table(machines))] == ["S4"]
    gone = cluster_now(now, again, Released(emptied=frozenset({address(4)})), table(machines), 2)
    assert address(4) not in {x.address for x in gone}


def test_control_planes_change_one_by_one():
    """O1: a plan with two new control planes is two releases and two revisions."""
    machines = [m(n, rack=n) for n in range(1, 8)]
    current = cluster([1], [2, 3])
    plan = decide(view(machines, current=current, constraints=limits(3)))
    changes = member_changes(current.members, plan)
    assert changes == (MemberChange(incoming=address(4)), MemberChange(incoming=address(5)))
    assert planes(cluster_now(current.members, plan, NOTHING, table(machines))) == [address(1)]
    one = cluster_now(current.members, plan, Released(control_plane=changes[0]), table(machines))
    assert planes(one) == [address(1), address(4)]
    only = change_operator(changes[0], current.members, plan, address(4))
    assert (only.kind, dict(only.cost), only.payload.incoming) == (
        "change-control-plane",
        {"control-plane": 1},
        address(4),
    )


def test_a_replacement_is_one_change_and_the_demoted_one_is_emptied_afterwards():
    """O2: in one revision the new one comes in and the bad one becomes a worker, untainted until it is empty."""
    machines = [m(1, rack=1, state="RETIRING"), m(2, rack=2), m(3, rack=3), m(4, rack=4)]
    current = cluster([1, 2], [3])
    plan = decide(view(machines, current=current, constraints=limits(2)))
    (change,) = member_changes(current.members, plan)
    assert change == MemberChange(address(4), address(1))
    now = cluster_now(current.members, plan, Released(control_plane=change), table(machines))
    assert planes(now) == [address(2), address(4)]
    assert Member(address(1), False, None, "S1") in now
    later = decide(view(machines, current=Current(now), constraints=limits(2)))
    assert later.action == "taint"
    assert [x.serial for x in to_empty(now, later, table(machines))] == ["S1"]
    retire = retire_operator("S1", address(1), "node-1", "")
    assert (retire.subject, dict(retire.cost), retire.payload.node) == ("machine/S1", {"fleet": 1}, "node-1")


def test_an_old_release_is_no_licence():
    """O1: a change that the present plan does not ask for is not made."""
    machines = [m(n, rack=n) for n in range(1, 8)]
    current = cluster([1], [2, 3])
    plan = decide(view(machines, current=current, constraints=limits(3)))
    stale = Released(control_plane=MemberChange(incoming=address(7)))
    assert planes(cluster_now(current.members, plan, stale, table(machines))) == [address(1)]


def test_a_first_generation_is_stored_whole():
    """F5: there is nothing yet that could be disturbed."""
    plan = decide(view([m(n, rack=n) for n in range(1, 8)], constraints=limits(3, 3)))
    assert len(cluster_now((), plan, NOTHING, {})) == 6


STATES = ["HEALTHY"] * 5 + ["UNHEALTHY", "RETIRING", "UPDATING"]


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_released_step_by_step_it_arrives_and_never_loses_the_quorum(data):
    """F3, O1: each stored revision changes at most one control plane each way, and the last one satisfies the plan."""
    machines = [
        m(n, rack=n % 4, state=data.draw(st.sampled_from(STATES)), role=data.draw(st.sampled_from(["cs", "ss"])))
        for n in range(data.draw(st.integers(8, 16)))
    ]
    made = template(node(role="cs"), node(role="ss"))
    listed = table(machines)
    members = cluster(list(range(data.draw(st.integers(1, 4)))), list(range(4, 8))).members
    wanted = limits(data.draw(st.integers(1, 4)), data.draw(st.integers(0, 5)))
    for _ in range(40):
        plan = decide(view(machines, template=made, constraints=wanted, current=Current(members)))
        if plan.error is not None or plan.action == "none":
            break
        changes = member_changes(members, plan)
        emptied = (
            frozenset(x.address for x in to_empty(members, plan, listed)) if data.draw(st.booleans()) else frozenset()
        )
        released = Released(control_plane=changes[0] if changes else None, emptied=emptied)
        now = cluster_now(members, plan, released, table(machines))
        before, after = set(planes(members)), set(planes(now))
        assert len(before - after) <= 1 and len(after - before) <= 1
        if len(before) > 1:
            assert len(before & after) * 2 >= len(before)
        assert len({x.address for x in now}) == len(now)
        again = cluster_now(now, plan, msgspec.structs.replace(released, control_plane=None), table(machines))
        assert again == now
        members = now
    else:
        released = Released(emptied=frozenset(listed))
        last = decide(view(machines, template=made, constraints=wanted, current=Current(members)))
        assert decide(
            view(
                machines,
                template=made,
                constraints=wanted,
                current=Current(cluster_now(members, last, released, table(machines))),
            )
        ).action in {"none", "taint", "decrease-workers"}


# ── the stored form ───────────────────────────────────────────────────────────────────────────────────────────────


def test_decisions_survive_and_stay_small():
    """F9: 10,000 machines fit into one Kubernetes object with room to spare."""
    members = tuple(
        Member(address(n), n < 3, ("retired", "NoExecute") if n % 100 == 7 else None, f"SERIAL-{n * 7919:09d}")
        for n in range(10_000)
    )
    stored = encode_decisions(Decisions("r1", members))
    assert len(stored) < 300_000
    assert decode_decisions(stored) == Decisions("r1", members)


def test_small_decisions_are_plain_json():
    """F9: a person can read them with kubectl."""
    members = tuple(
        Member(s.address, s.control_plane, None, s.machine.serial) for s in decide(view([m(1), m(2)])).assignments
    )
    assert encode_decisions(Decisions("r", members)) == b'[1,"r",1,[["S1","10.69.0.1",""],["S2","10.69.0.2",""]]]'
    again = decide(view([m(1), m(2)], current=decode_decisions(encode_decisions(Decisions("r", members))).current()))
    assert again.action == "none"
    assert members[0].control_plane


def test_what_we_did_not_write_is_refused():
    """F9: a newer version, a broken text."""
    for raw in (b"", b"{}", b"zlib:AAAA", b"zlib:%%", b'[2,"r",0,[]]', b"[1]"):
        try:
            decode_decisions(raw)
        except InvalidDecisionsError:
            continue
        raise AssertionError(raw)


def test_a_revision_names_content_not_layout():
    """F2: reordering keys is no new template, changing one is."""
    assert revision_of({"a": 1, "b": {"c": 2, "d": 3}}) == revision_of({"b": {"d": 3, "c": 2}, "a": 1})
    assert revision_of({"a": 1}) != revision_of({"a": 2})
