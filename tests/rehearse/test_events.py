"""Events on the command line, checked against the snapshot."""

import shlex
from pathlib import Path

import msgspec
import pytest

from mooring.core.model.capacity import CapacityRules
from mooring.core.model.kinds import Kind
from mooring.process.assemble import capacity_rules
from mooring_lab.cli import rehearse as command
from mooring_lab.rehearse.events.catalog import Act, BadEventError, Name, Options, acts, listed, span
from mooring_lab.rehearse.snapshot.schema import Snapshot

RULES = CapacityRules()


def read(words: str, snapshot: Snapshot, **options: object) -> list[Act]:
    return acts(words.split(), snapshot, RULES, Options(**options))  # type: ignore[arg-type]


def without(snapshot: Snapshot, **parts: object) -> Snapshot:
    return msgspec.structs.replace(snapshot, **parts)


def test_each_event_names_whom_it_befalls(demo: Snapshot) -> None:
    """O4: the words and the snapshot together say which nodes, machines and pods."""
    assert read("rack-lost 2", demo)[0].nodes == ("n5", "n6", "n7", "n8", "s5", "s6", "s7", "s8")
    assert read("node-lost n7", demo)[0].nodes == ("n7",)
    (gone,) = read("spot-gone", demo, notice_s=30.0)
    assert (len(gone.nodes), gone.notice_s) == (12, 30.0)
    assert read("spot-gone", demo, unannounced=True)[0].notice_s is None
    assert read("retire M002 M003", demo)[0].machines == ("M002", "M003")
    assert read("retire", demo, count=2)[0].machines == ("M001", "M002")
    wanted = tuple(("tidb", f"demo-tikv-{i}") for i in range(3))
    assert read("restart tidb/demo", demo)[0].pods == read("restart demo", demo)[0].pods == wanted


def test_several_events_are_joined_by_then_and_ordered_by_their_offsets(demo: Snapshot) -> None:
    """O4: `@` says when; whatever is written first, the earlier comes first."""
    found = read("spot-gone@2m then rack-lost 2 then node-lost@30s n1", demo)
    assert [(act.name, act.after_s) for act in found] == [
        (Name.RACK_LOST, 0.0),
        (Name.NODE_LOST, 30.0),
        (Name.SPOT_GONE, 120.0),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "name an event: one of rack-lost"),
        ("then", "name an event"),
        ("spot-gone then", "name an event"),
        ("flood", "no event 'flood'; there are rack-lost, node-lost, spot-gone, retire, restart"),
        ("rack-lost", "takes one rack name"),
        ("rack-lost 9", "no rack '9' by label cke.cybozu.com/rack; there are 1 2 3"),
        ("node-lost x", "no node 'x' in the snapshot; there are n1 n2 n3"),
        ("spot-gone now", "no spot pool"),
        ("spot-gone@soon", "'soon' is not a duration"),
        ("retire", "serials of machines, or --count N"),
        ("rack-lost 22", "there are 1 2 3; did you mean 2?"),
        ("node-lost n33", "; did you mean n3?"),
        ("retire M0011", "; did you mean M011?"),
        ("restart tidb/dem", "there are tidb/demo; did you mean tidb/demo?"),
        ("retire M999", "no machine 'M999' in the snapshot; those with a node are M001"),
        ("restart shop", "TidbCluster 'shop' is not in the snapshot; there are tidb/demo"),
    ],
)
def test_a_wrong_event_is_told_what_would_be_right(words: str, said: str, demo: Snapshot) -> None:
    """O4: bad input says what is wrong and lists what there is."""
    with pytest.raises(BadEventError) as error:
        read(words, demo)
    assert said in str(error.value)


def test_what_the_snapshot_does_not_have_is_said(demo: Snapshot) -> None:
    """O4: no machines, no fleet, no PD, no spot nodes, no racks: each event says what it needs."""
    objects = {kind: these for kind, these in demo.objects.items() if kind != Kind.CONFIG_MAP}
    nodes = [{**n, "metadata": {**n["metadata"], "labels": {}}} for n in demo.of(Kind.NODE)]
    cases = {
        "retire M002": [
            (without(demo, machines=None), "take it with --sabakan-url"),
            (without(demo, objects=objects), "the fleet is not enabled"),
        ],
        "restart demo": [(without(demo, pds=()), "--pd tidb/demo=http://HOST:2379")],
        "spot-gone": [(without(demo, objects={**objects, "Node": nodes}), "none of the 24 nodes")],
        "rack-lost 1": [(without(demo, objects={**objects, "Node": nodes}), "--rack-label")],
    }
    for words, snapshots in cases.items():
        for snapshot, said in snapshots:
            with pytest.raises(BadEventError) as error:
                read(words, snapshot)
            assert said in str(error.value)


def test_more_machines_than_there_are_cannot_be_retired(demo: Snapshot) -> None:
    """O4: --count names how many could be."""
    with pytest.raises(BadEventError, match="only 12 machines"):
        read("retire", demo, count=50)
    for words, count in (("retire", -2), ("retire M001", -2), ("retire", 0)):
        with pytest.raises(BadEventError, match="serials of machines, or --count N"):
            read(words, demo, count=count)


def test_spans_and_names_read_as_people_write_them() -> None:
    """O4: 90s, 2m, 1h, 90; n2 before n10; long lists are cut and counted."""
    assert [span(text) for text in ("90s", "2m", "1h", "90", "0.5m")] == [90.0, 120.0, 3600.0, 90.0, 30.0]
    assert listed(["n10", "n2", "n1"]) == "n1 n2 n10"
    assert listed(f"n{i}" for i in range(20)).endswith("n11 and 8 more")


def examples() -> list[str]:
    """Of docs/rehearse.md, up to its worked example, and of `mooring rehearse play --help`."""
    page = (Path(__file__).parents[2] / "docs" / "rehearse.md").read_text().partition("## A worked example")[0]
    lines = [line.partition("#")[0].strip() for line in page.splitlines()]
    lines += [line.strip().removeprefix("Example: ") for line in (command.play.__doc__ or "").splitlines()]
    return [line for line in lines if line.startswith("mooring rehearse play ") and ".blackbox" not in line]


@pytest.mark.parametrize("line", examples())
def test_every_example_can_be_typed_with_the_demos_snapshot(demo: Snapshot, line: str) -> None:
    """O4: whoever tries the page without a cluster at hand finds no zone, machine or pod in it that is not there."""
    _, bound, _ = command.app.parse_args(shlex.split(line)[2:], print_error=False, exit_on_error=False)
    plan = bound.arguments["setup"].plan() if "setup" in bound.arguments else command.Setup().plan()
    assert acts(bound.arguments["event"], demo, capacity_rules(plan.config), plan.options)
