"""Numbers that others chose: what is read of them can be recorded, added up and shown, or it is not read."""

import json

import msgspec
import pytest

from mooring.capabilities.balance.foreign import steps_of
from mooring.clients.pd import answers, regions
from mooring.clients.ports import UnansweredError
from mooring.clients.registry.rows import InvalidMachinesError
from mooring.clients.registry.sabakan.parse import parse_machines
from mooring.clients.wire.placement import placement
from mooring.clients.wire.quantity import share_of
from mooring.core.model.marks import Mark, read_mark, read_marks, write_mark
from mooring.core.model.tidb import PdOperator
from mooring.core.model.times import time_of_day

HUGE = ["18446744073709551616", "9" * 30, "9" * 4000, "-" + "9" * 30, "1" + "0" * 310]
STORES = '{"stores":[{"store":{"id":1,"last_heartbeat":7},"status":{"capacity":5,"leader_count":3,"region_size":4}}]}'
MEMBERS = '{"members":[{"name":"pd-0","member_id":8}],"leader":{"name":"pd-0","member_id":8}}'
REGIONS = (
    '{"count":2,"regions":[{"id":1,"epoch":{"conf_ver":3,"version":4},"peers":[{"id":5,"store_id":6}],'
    '"leader":{"id":7,"store_id":8},"approximate_size":9}]}'
)
PD = {
    "stores": (answers.stores, STORES),
    "store": (answers.store, STORES.removeprefix('{"stores":[').removesuffix("]}")),
    "members": (answers.members, MEMBERS),
    "health": (answers.health, '[{"name":"pd-0","member_id":8,"health":true}]'),
    "status": (answers.status, '{"start_timestamp":1}'),
    "regions": (regions.regions, REGIONS),
    "range": (regions.regions_of_range, REGIONS),
    "count": (regions.region_count, REGIONS),
    "rules": (
        lambda body: placement(b'{"low-space-ratio":0.8}', b'{"max-replicas":3}', body, None, None),
        '[{"group_id":"pd","id":"x","index":1,"count":3}]',
    ),
    "schedule": (lambda body: placement(body, b"{}", None, None, None), '{"low-space-ratio":8}'),
    "replicate": (lambda body: placement(b"{}", body, None, None, None), '{"max-replicas":3}'),
}


def variants(body: str) -> list[bytes]:
    """The body with each of its numbers, one at a time, a huge one."""
    places = [i for i, c in enumerate(body) if c.isdigit() and body[i - 1] == ":" and not body[i + 1].isdigit()]
    return [(body[:at] + huge + body[at + 1 :]).encode() for at in places for huge in HUGE]


@pytest.mark.parametrize("what", PD)
def test_a_huge_number_of_a_pd_stops_no_recording(what):
    """A tenant's PD writes it; the recording holds 64 bits, and one number more than that ended it for everybody."""
    read, body = PD[what]
    assert msgspec.msgpack.encode(read(body.encode()))
    assert variants(body)
    for sent in variants(body):
        try:
            found = read(sent)
        except (UnansweredError, ValueError):
            continue
        msgspec.msgpack.encode(found)


def test_sizes_in_words_stop_no_recording():
    """`99999EiB` and the like are cut off where 64 bits end."""
    for size in ("9" * 17 + "EiB", "99999EiB", 10**30, -(10**30)):
        assert 0 <= answers.bytes_of(size) < 2**63


@pytest.mark.parametrize("body", [b'{"a":' * 5000, b'{"a":' + b"[" * 30_000, b'"{' + b"[" * 30_000 + b'"'])
def test_an_error_of_a_pd_may_be_nested_as_deep_as_it_likes(body):
    """It is quoted as it came, and shortened by whoever shows it."""
    assert answers.text(body)


def test_steps_of_an_operator_name_stores_that_there_can_be():
    """PD prints an operator's steps; a store of five thousand digits is none, and no reason to fail."""
    digits = "9" * 5000
    texts = (
        f"transfer leader from store 1 to store {digits}",
        f"add peer 1 on store {digits}",
        "remove peer on store 4",
    )
    (step,) = steps_of(PdOperator(7, "x", "", "RUNNING", texts))
    assert step.store == 4


@pytest.mark.parametrize("huge", HUGE)
def test_machines_with_huge_numbers_are_refused(huge):
    """sabakan's racks and positions are small; 64 bits are more than enough."""
    spec = {"serial": "s", "rack": 0, "indexInRack": 0, "role": "cs", "registerDate": "2020-01-01T00:00:00Z"}
    spec["retireDate"] = "2030-01-01T00:00:00Z"
    body = json.dumps([{"spec": spec, "status": {"state": "HEALTHY"}}])
    assert len(parse_machines(body.encode(), 0.0)) == 1
    with pytest.raises(InvalidMachinesError):
        parse_machines(body.replace('"rack": 0', f'"rack": {huge}').encode(), 0.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("storeID", 10**30), ("storeID", -(10**30)), ("since", 1e300), ("since", -1e300), ("deadline", 1e300)],
)
def test_a_mark_with_a_number_that_is_none_of_ours_is_not_read(field, value):
    """mooring.dev/handoff, mooring.dev/reserved: no moment that cannot be shown, no store that cannot be recorded."""
    written = Mark(operator="7", source="x", reason="y", step="z", since=5.0, store_id=1, deadline=6.0)
    honest = json.loads(write_mark(written))
    assert (mark := read_mark(json.dumps(honest))) is not None and time_of_day(mark.since)
    forged = honest | {field: value}
    assert read_mark(json.dumps(forged)) is None
    assert read_marks(json.dumps({"demo-tikv-0": forged})) is None


def test_a_percentage_of_any_length_is_a_number_of_pods():
    """maxSurge: the API server takes any percentage; Kubernetes itself counts in 32 bits."""
    for text in ("9" * 40 + "%", "9" * 40, "-" + "9" * 40, "9" * 4000 + "%"):
        found = share_of(text, 10, round_up=True)
        assert found is None or abs(found) < 2**32
    assert share_of("25%", 10, round_up=True) == 3
