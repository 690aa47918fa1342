"""The scheduler's shortcuts equal the long way round."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.controllers.podstate import with_meta, with_spec
from mooring_lab.cluster.nodes import HOSTNAME, node_object
from mooring_lab.cluster.scheduler.classes import ClassTable
from mooring_lab.cluster.scheduler.constraints import points, sibling_penalties
from mooring_lab.cluster.scheduler.needs import parse_needs
from mooring_lab.cluster.scheduler.snapshot import PodUse, SchedulerSnapshot

PREFER_SPOT = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "preference": {
                    "matchExpressions": [{"key": "node.kubernetes.io/capacity", "operator": "In", "values": ["spot"]}]
                },
            }
        ]
    }
}


def needs(cpu, affinity=None):
    return parse_needs(
        {"containers": [{"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}], "affinity": affinity or {}}
    )


CLASSES = [needs("500m"), needs("1500m", PREFER_SPOT), needs("3")]
OPS = st.lists(
    st.tuples(
        st.sampled_from(["place", "remove", "add", "drop", "cordon", "taint", "look"]),
        st.integers(0, 5),
        st.integers(0, 9),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(OPS)
def test_a_table_that_caught_up_equals_one_made_now(ops):
    """Whatever happens to nodes and pods, an incremental table has the scores of a fresh one."""
    snapshot = SchedulerSnapshot()
    tables = [ClassTable(one, snapshot) for one in CLASSES]
    for kind, node, number in ops:
        name = f"n{node}"
        made = node_object(name, node, 0.0, capacity="spot" if node % 2 else "on-demand", cpu="4", memory="8Gi")
        match kind:
            case "place":
                snapshot.place(PodUse(("ns", f"p{number}"), f"u{number}", name, CLASSES[number % 3], {}, "owner"))
            case "remove":
                snapshot.take_away(("ns", f"p{number}"))
            case "add":
                snapshot.set_node(made)
            case "drop":
                snapshot.drop_node(name)
            case "cordon":
                snapshot.set_node(with_spec(made, unschedulable=bool(number % 2)))
            case "taint":
                snapshot.set_node(
                    with_spec(made, taints=[{"key": "x", "effect": "PreferNoSchedule" if number % 2 else "NoSchedule"}])
                )
            case "look":
                tables[number % 3].catch_up()
    for table in tables:
        assert table.catch_up() == ClassTable(table.needs, snapshot).catch_up()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=12).filter(lambda counts: 0 in counts and any(counts)))
def test_penalties_for_siblings_equal_the_points_of_spreading(counts):
    """The quick way to keep siblings apart gives each node the same distance from a free one as the full computation."""
    snapshot = SchedulerSnapshot()
    for index, count in enumerate(counts):
        snapshot.set_node(with_meta(node_object(f"n{index:02d}", index, 0.0), labels={HOSTNAME: f"n{index:02d}"}))
        for i in range(count):
            snapshot.place(PodUse(("ns", f"p{index}-{i}"), f"u{index}-{i}", f"n{index:02d}", CLASSES[0], {}, "owner"))
    use = PodUse(("ns", "new"), "new", "", CLASSES[0], {}, "owner")
    full = points(ObjectStore(Timeline()), snapshot, use, [node.index for node in snapshot.order])
    free = full[counts.index(0)]
    quick = sibling_penalties(snapshot.by_owner["owner"], len(counts))
    assert [free - full[i] for i in range(len(counts))] == [quick[c] if c else 0 for c in counts]
