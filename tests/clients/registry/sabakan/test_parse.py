"""Reading sabakan's answer: a complete list, with what is wrong beside the machine that it is wrong with."""

import json
from pathlib import Path

import msgspec
import pytest

from mooring.clients.registry.rows import InvalidMachinesError, parse_date
from mooring.clients.registry.sabakan.parse import parse_machines, read_machines
from mooring.core.model.machine import MachineState


def raw(serial="m1", **spec):
    status = spec.pop("status", {"state": "HEALTHY", "duration": 12.5})
    base = {
        "serial": serial,
        "labels": [{"name": "product", "value": "R640"}],
        "rack": 3,
        "indexInRack": 4,
        "role": "cs",
        "ipv4": ["10.69.0.4", "10.69.0.68"],
        "registerDate": "2026-11-15T19:58:00.41024938Z",
        "retireDate": "2031-06-01T00:00:00+09:00",
        "bmc": {"bmcType": "iDRAC-9", "ipv4": "10.72.17.4"},
    }
    return {"spec": {**base, **spec}, "status": status}


def parse(*machines):
    return parse_machines(json.dumps(list(machines)).encode(), 1000.0)


def test_a_machine_is_read_whole():
    """F1: dates in seconds and as text, the state's age from the moment of receipt, the first address."""
    (machine,) = parse(raw())
    assert machine.address == "10.69.0.4" and machine.serial == "m1"
    assert machine.state is MachineState.HEALTHY and machine.state_since == 987.5
    assert (machine.rack, machine.index_in_rack, machine.role, machine.labels) == (3, 4, "cs", {"product": "R640"})
    assert machine.register_date == "2026-11-15T19:58:00Z" and machine.retire_date == "2031-06-01T00:00:00+09:00"
    assert machine.registered_at == pytest.approx(1794772680.41024938) and machine.bmc_address == "10.72.17.4"


def test_the_whole_answer_and_the_bare_list_are_the_same():
    """F1: files hold either."""
    answer = json.dumps({"data": {"searchMachines": [raw()]}}).encode()
    assert parse_machines(answer, 1000.0) == parse(raw())


@pytest.mark.parametrize("ipv4", [[], None])
def test_a_machine_without_ipv4_is_kept_with_no_address(ipv4):
    """F10: the planner leaves it out and names it."""
    assert parse(raw(ipv4=ipv4))[0].address == ""


def test_labels_may_be_null_and_unknown_fields_are_let_through():
    """F1: sabakan answers null when there are none."""
    assert parse({**raw(labels=None, ipv6=None), "info": {}})[0].labels == {}


BAD = [
    (raw(rack="3"), "spec.rack: Expected `int`, got `str`"),
    (raw(rack=-1), "spec.rack"),
    (raw(role=""), "role: '' is not a role"),
    (raw(ipv4=["10.0.0.300"]), "ipv4[0]: '10.0.0.300' is not an IPv4 address"),
    (raw(ipv4=["fe80::1", "10.69.0.4"]), "is not an IPv4 address"),
    (raw(registerDate="2026-11-15"), "registerDate: '2026-11-15' is not an RFC 3339 date"),
    (raw(retireDate="2026-13-15T00:00:00Z"), "retireDate"),
    (raw(labels=[{"name": "a b", "value": "c"}]), "labels: 'a b'"),
    (raw(labels=[{"name": "a", "value": "b c"}]), "labels.a: 'b c'"),
    (raw(labels=[{"name": "a"}]), "labels[0]: Object missing required field `value`"),
    (raw(labels={"a": "b"}), "labels: Expected `array | null`"),
    (raw(status={"state": "BROKEN", "duration": 1}), "status.state: Invalid enum value 'BROKEN'"),
    ({"spec": raw()["spec"]}, "Object missing required field `status`"),
]


@pytest.mark.parametrize(("machine", "said"), BAD)
def test_a_bad_row_is_left_out_by_name(machine, said):
    """F10: the machine stays in the list with what is wrong, and the others are as they would be without it."""
    good = raw("m2", ipv4=["10.69.0.5"])
    found = parse(machine, good)
    assert [m.serial for m in found] == ["m1", "m2"] and said in found[0].problem
    assert found[1] == parse(good)[0] and not found[1].problem


@pytest.mark.parametrize(("machine", "said"), BAD)
def test_a_list_of_bad_rows_alone_is_refused(machine, said):
    """F10: then it is the list that is wrong, not a machine."""
    with pytest.raises(InvalidMachinesError) as caught:
        parse(machine)
    assert said in str(caught.value)


@pytest.mark.parametrize("machine", [{"spec": {}, "status": {"state": "HEALTHY"}}, raw(serial="", ipv4=[]), 7])
def test_a_row_that_names_no_machine_refuses_the_list(machine):
    """F10: it could be anybody's, and a machine that is not listed is removed."""
    with pytest.raises(InvalidMachinesError, match="names no machine"):
        parse(raw("m2"), machine)


def test_machines_that_share_an_identity_are_left_out():
    """F10, F11: which of the two is meant would depend on the order of the list; the third is as it was."""
    found = parse(raw("a"), raw("b"), raw("c", ipv4=["10.69.0.5"]))
    assert ["10.69.0.4 belongs to several machines" in m.problem for m in found] == [True, True, False]
    found = parse(raw("a"), raw("a", ipv4=["10.69.0.6"]), raw("c", ipv4=["10.69.0.5"]))
    assert ["serial a belongs to several machines" in m.problem for m in found] == [True, True, False]


@pytest.mark.parametrize(
    "text", [b"", b"[", b'{"data": {"searchMachines": [{"spec"', b'{"data": null}', b"{}", b'{"data": {}}', b"\xff"]
)
def test_half_an_answer_is_no_answer(text):
    """F1: nothing is read out of a broken body."""
    with pytest.raises(InvalidMachinesError):
        parse_machines(text, 0.0)


def test_errors_beside_data_win():
    """F1: a partial answer with errors is refused."""
    text = json.dumps({"data": {"searchMachines": [raw()]}, "errors": [{"message": "etcd is away"}]}).encode()
    with pytest.raises(InvalidMachinesError, match="etcd is away"):
        parse_machines(text, 0.0)


@pytest.mark.parametrize(
    "text", ["", "now", "2026-01-01", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z", "2026-01-01 00:00:00Z"]
)
def test_dates_are_rfc3339(text):
    """F8: no guessing."""
    assert parse_date(text) is None


def test_a_machine_without_news_is_the_same_object():
    """F9: what is compared every minute is compared by identity; a state's beginning does not wander with delays."""
    text = json.dumps([raw(), raw("m2", ipv4=["10.69.0.5"])]).encode()
    first = parse_machines(text, 1000.0)
    again = drain(read_machines(text, 1000.9, {m.serial: m for m in first}))
    assert all(a is b for a, b in zip(first, again, strict=True))
    later = drain(read_machines(text, 1060.0, {m.serial: m for m in first}))
    assert [m.state_since - f.state_since for m, f in zip(later, first, strict=True)] == [60.0, 60.0]


def drain(reading):
    while True:
        try:
            next(reading)
        except StopIteration as done:
            return done.value


def test_labels_that_are_no_text_are_said_to_be_so():
    """Found by the fuzzer: a byte that is no UTF-8 in a label is a row that cannot be used, not a defect."""
    recorded = (Path(__file__).parent / "recorded.json").read_bytes()
    answer = msgspec.json.encode(msgspec.json.decode(recorded)["all"]).replace(b"datacenter", b"data\xffcenter")
    wrong = [m for m in parse_machines(answer, 0.0) if m.problem]
    assert wrong and all(m.problem.startswith("labels") for m in wrong)
