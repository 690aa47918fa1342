"""The plan as JSON text is the plan as dicts, whatever machines and templates hold."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.capabilities.fleet.planner.decide import decide, encode_cluster, write_cluster
from tests.capabilities.fleet.fleet_making import cluster, limits, m, node, template, view

serials = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=6)
labels = st.dictionaries(st.sampled_from(["product", "datacenter", "x.y"]), st.sampled_from(["", "R640", "dc-1"]))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(serials, st.integers(0, 3), labels, st.sampled_from(["cs", "ss"])), min_size=4, max_size=12),
    st.dictionaries(
        st.sampled_from(["topology.kubernetes.io/zone", "cke.cybozu.com/index-in-rack", "team"]),
        st.sampled_from(["a", "b"]),
    ),
    st.dictionaries(st.sampled_from(["cke.cybozu.com/serial", "note"]), st.text(max_size=5)),
    st.booleans(),
)
def test_text_and_dicts_say_the_same(fleet, given_labels, annotations, tainted):
    """F8, F11: labels, annotations, taints and fields carried over come out alike, escapes and all."""
    machines = [
        msgspec.structs.replace(m(n, rack=rack, role=role), serial=f"{serial}{n}", labels=own)
        for n, (serial, rack, own, role) in enumerate(fleet, 1)
    ]
    worker = node() | {"labels": given_labels, "annotations": annotations, "kernel": {"args": ['"quoted"']}}
    if tainted:
        worker["taints"] = [{"key": "a/b", "value": "c", "effect": "NoSchedule"}]
    v = view(machines, template=template(worker), constraints=limits(1, len(machines) - 1))
    plan = decide(v)
    assert plan.error is None
    assert msgspec.json.decode(msgspec.json.encode(encode_cluster(v, plan))) == write_cluster(v, plan)


def test_a_vanished_node_and_a_retiring_one_are_written_too():
    """F6, F8: the text knows of state taints, and of nodes kept although their machine is gone."""
    machines = [m(1), m(2, state="RETIRING"), m(3), m(4)]
    v = view(machines, current=cluster([1], [2, 3, 9]), constraints=limits(1, 2))
    plan = decide(
        msgspec.structs.replace(v, held_removals=frozenset({v.current.members[-1].address}), hold_removal=True)
    )
    assert plan.error is None and plan.action != "none"
    bare = msgspec.structs.replace(plan, nodes=None)
    written = write_cluster(v, bare)
    assert msgspec.json.decode(msgspec.json.encode(encode_cluster(v, bare))) == written
    assert any(t["value"] == "retiring" for n in written["nodes"] for t in n["taints"])
    assert any(assignment.machine is None for assignment in plan.assignments)
