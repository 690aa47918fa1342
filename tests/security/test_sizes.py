"""Values from outside that are long: what is kept of them is bounded by bytes, not by how many there are."""

import gc
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest

from mooring.capabilities.handoff.facts import members_away
from mooring.capabilities.handoff.member_operators import missing_members
from mooring.capabilities.mix.labels import CUSTOM, ENABLED, MODE, SLOT, Misconfigured, read, slot_of
from mooring.capabilities.mix.slots import SlotLedger, SlotPlace
from mooring.clients.wire import kube as wire
from mooring.clients.wire import pods, quantity, sharing
from mooring.core.model.cluster import Pod, PodShape
from mooring.core.model.kinds import Kind
from mooring.core.model.limits import KIB, MIB, SharedValues, is_dense, shallow, weight
from mooring.core.model.marks import HANDOFF
from mooring.core.model.tidb import TidbCluster
from mooring.core.model.times import moment
from mooring.core.world.world import World


def bytes_kept(work: Callable[[int], object], times: int) -> int:
    """What is still held after `work(0)`, `work(1)` … returned, beyond what one call leaves."""
    work(-1)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(times):
            work(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def long_text(number: int, length: int) -> str:
    return f"{number}-".ljust(length, "x")


def test_h2_long_labels_are_refused_and_not_kept():
    """H2: reviews with labels of megabytes stayed in the cache of what labels mean."""

    def ask(number: int) -> None:
        text = long_text(number, 256 * KIB)
        for labels, annotations in (
            ({ENABLED: text}, {}),
            ({MODE: text}, {}),
            ({CUSTOM: text}, {}),
            ({}, {CUSTOM: text}),
        ):
            said = read(Kind.DEPLOYMENT, labels, annotations)
            assert isinstance(said, Misconfigured) and len(str(said)) < 1000, "the owner is told, shortly"

    assert bytes_kept(ask, 40) < MIB


def test_h2_long_slots_are_not_kept():
    """H2: so did the annotation that names a slot."""

    def ask(number: int) -> None:
        marked = {SLOT: long_text(number, 256 * KIB)}
        assert slot_of(Pod("shop", "web", "u", "1", PodShape(), annotations=marked)) is None

    assert bytes_kept(ask, 40) < MIB


def read_object(kind: Kind, obj: dict[str, object]) -> object:
    return wire.decode(kind, msgspec.json.encode(obj))


def test_h1_annotations_that_are_rewritten_are_not_kept(monkeypatch):
    """H1: one annotation of 256 KB under our prefix, rewritten 1,000 times, stayed 1,000 times in the shared tables."""

    def rewrite(number: int) -> None:
        many = {f"mooring.dev/x{part}": long_text(number, KIB) for part in range(250)}
        for kind in (Kind.DEPLOYMENT, Kind.NODE, Kind.TIDB_CLUSTER, Kind.POD):
            for annotations in ({"mooring.dev/x": long_text(number, 256 * KIB)}, many):
                row = read_object(kind, {"metadata": {"name": "a", "uid": "u", "annotations": annotations}})
                assert weight(row.annotations) < 40 * KIB, "and while it lives it takes little"

    small_tables(monkeypatch)
    assert bytes_kept(rewrite, 20) < 2 * MIB


def test_h1_marks_count_up_to_64_kib():
    """H1: a mark keeps its room; nothing that Mooring writes is cut."""
    given = {HANDOFF: long_text(1, 256 * KIB), "mooring.dev/x": long_text(1, 2 * KIB), "vacant.io/slot": "3"}
    row = wire.project(Kind.TIDB_CLUSTER, {"metadata": {"annotations": given}})
    assert {key: len(value) for key, value in row.annotations.items()} == {
        HANDOFF: 64 * KIB, "mooring.dev/x": KIB, "vacant.io/slot": 1
    }  # fmt: skip


def large_pod(number: int) -> dict[str, object]:
    """Some hundred KB, all of them of its own."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    values = [f"{number}-{part}" for part in range(2000)]
    terms = [{"matchExpressions": [{"key": "k", "operator": "In", "values": values}]}] * 2
    return {
        "metadata": {"name": "a", "uid": "u", "labels": {f"{number}-label-{part}": "x" * 60 for part in range(2000)}},
        "spec": {
            "schedulerName": long_text(number, 100 * KIB),
            "tolerations": [{"key": f"{number}-{part}", "operator": "Exists"} for part in range(2000)],
            "affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}},
            "containers": [{"resources": {"requests": {"cpu": f"{number}{part}m"}}} for part in range(500)],
            "nodeSelector": {f"{number}-selector-{part}": "x" for part in range(2000)},
        },
    }


def small_tables(monkeypatch) -> None:
    """A quarter of a megabyte each, so that a few objects fill them."""
    for module in (sharing, pods):
        for name, table in vars(module).items():
            if isinstance(table, SharedValues):
                monkeypatch.setattr(module, name, SharedValues(4096, MIB // 4))


def test_h1_large_pods_that_come_and_go_are_not_kept(monkeypatch):
    """H1: pods with a megabyte of tolerations left 3.1 MB each behind."""

    def come_and_go(number: int) -> None:
        row = read_object(Kind.POD, large_pod(number))
        assert weight(row) < 300 * KIB

    small_tables(monkeypatch)
    assert bytes_kept(come_and_go, 12) < 4 * MIB


def test_h1_a_table_is_bounded_by_bytes():
    """H1: entries alone are no bound where the sender chooses how long each is."""
    table: SharedValues[str, str] = SharedValues(1 << 20, MIB)
    for number in range(1000):
        text = long_text(number, 10 * KIB)
        table.put(text, text)
    assert 0 < len(table) <= 2 * MIB // (10 * KIB)
    assert table.put("large", long_text(0, 100 * KIB)) and table.get("large") is None


def test_h1_long_times_and_quantities_are_not_kept():
    """H1: the parsers of times and quantities remember what they read."""

    def ask(number: int) -> None:
        text = long_text(number, 256 * KIB)
        assert (quantity.epoch(text), moment(text), quantity.milli(text)) == (None, None, 0)

    assert bytes_kept(ask, 40) < MIB


def test_m2_a_slot_that_somebody_wrote_takes_no_room():
    """M2: 60 pods with `vacant.io/slot: "99999"` took 228 MB: each free slot below it was kept."""

    def hold(number: int) -> None:
        ledger = SlotLedger()
        ledgers.append(ledger)
        ledger.put("a", SlotPlace(99_999, on_demand=False))
        assert ledger.lowest_free() == 0

    ledgers: list[SlotLedger] = []
    assert bytes_kept(hold, 60) < MIB


def test_m5_members_that_a_spec_asks_for_are_one_fact_beyond_the_first():
    """M5: 60 TidbClusters that want 10,000 TiKV each took 320 MB of facts: the rest is one fact with a count."""
    tc = TidbCluster("shop", "db", "u", "1", tikv_replicas=10_000, tidb_replicas=10_000)
    for facts in (
        list(members_away(tc, {}, None, 0.0, 60.0)),
        list(missing_members(tc, "tidb", {}, None, World(), 0.0)),
    ):
        assert len(facts) == 101
        assert sum(fact.amount for fact in facts) == 10_000, "the room that they take is the same"


def test_m6_a_dense_answer_of_the_registry_is_refused():
    """M6: 16 MiB of `errors: [[],…` took 791 MB and 5.5 s in one piece."""
    assert is_dense(b'{"errors":[' + b"[]," * MIB + b"[]]}", bytes_per_object=24)
    label = {"name": "rack", "value": "1"}
    spec = {"serial": "0123456789", "labels": [label] * 20, "rack": 1, "ipv4": ["10.0.0.1", "10.0.0.2"]}
    machines = [{"spec": spec, "status": {"state": "HEALTHY", "duration": 1.0}}] * 10_000
    honest = msgspec.json.encode({"data": {"searchMachines": machines}})
    assert not is_dense(honest, bytes_per_object=24)


@pytest.mark.parametrize("kind", [Kind.TIDB_CLUSTER, Kind.PVC])
def test_a_dense_object_is_not_decoded(kind):
    """Found by fuzzing sizes: 1.2 MB of `[[]],` in a free-form field took 40 MB and the deciding loop for 160 ms at each
    change. Who it is remains, or its list and watch would break."""
    dense = b'{"metadata":{"name":"db","namespace":"shop","uid":"u"},"spec":[' + b"[[]]," * 240_000 + b"1]}"
    wire.decode(kind, b'{"metadata":{}}')
    tracemalloc.start()
    try:
        row = wire.decode(kind, dense)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()
    assert (row.namespace, row.name, row.uid) == ("shop", "db", "u")
    assert wire.decode(kind, b"[" + b"[]," * 200_000 + b"1]").name == "", "and what is no object raises nothing"


def test_depth_beyond_every_decoder_costs_one_field_only():
    """A TidbCluster that nests 10,000 deep broke list and watch of that kind on Python 3.12: the depth is cut out, and
    nothing else of the object."""
    deep = b'{"spec":{"x":' + b'[{"a":' * 50_000 + b"1" + b"}]" * 50_000 + b',"tikv":{"replicas":3},"y":"[[\\"[{"}}'
    cut = msgspec.json.decode(shallow(deep))
    assert cut["spec"]["tikv"] == {"replicas": 3} and cut["spec"]["y"] == '[["[{'
    assert shallow(b'{"a":[1]}') == b'{"a":[1]}'
