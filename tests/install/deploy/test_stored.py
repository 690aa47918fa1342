"""Going back one version: what this version writes into a cluster, the previous one can read; and the other way round.

`Old…` below are the readers of 0.1.0, frozen: they are not imported from the sources on purpose. A change of what is
stored must still pass them, until no supported version reads that way. `stored/0.1.0.json` is what 0.1.0 wrote.
"""

import base64
import json
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from mooring.capabilities.fleet.live.ledger import (
    Decisions,
    Pending,
    StoredChange,
    encode_decisions,
    read_ledger,
    write_pending,
)
from mooring.capabilities.fleet.planner.current import Member
from mooring.capabilities.home.memory import read_places, write_places
from mooring.capabilities.mix import memory
from mooring.capabilities.mix.descriptor import TLS_SECRET
from mooring.core.model.cluster import ConfigMap
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HOME, Mark, read_mark, read_marks, write_mark, write_marks
from mooring.process.admission.certificates import SETTLED_S
from mooring.process.admission.configurations import WebhookAddress
from mooring.process.admission.reloading_tls import ReloadingTls
from mooring.process.admission.webhook_reconciler import WebhookReconciler
from mooring.process.settings.config import Config
from mooring_lab.stage.rig import Rig

GOLDEN = json.loads((Path(__file__).parent / "stored/0.1.0.json").read_text())


class OldMark(msgspec.Struct, rename="camel"):
    operator: str
    source: str
    reason: str
    step: str
    since: float
    detail: str = ""
    pod: str = ""
    pod_uid: str = msgspec.field(default="", name="podUID")
    pod_create_time: str = ""
    store_id: int = msgspec.field(default=0, name="storeID")
    node: str = ""
    machine: str = ""
    value: str = ""
    deadline: float | None = None
    restart: str = ""
    before: dict[str, str] = {}


class OldNote(msgspec.Struct, rename="camel"):
    until: float = 0.0
    attempts: int = 0
    last_move: float = 0.0
    begun: bool = False
    reason: str = ""
    off_by: int = 0
    wanted: str = ""


class OldPending(msgspec.Struct):
    at: float
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class OldPlace(msgspec.Struct):
    node: str = ""
    left: str = ""


class OldStored(msgspec.Struct, array_like=True):
    version: int
    revision: str
    control_planes: int
    rows: list[tuple[str, str, str]]


class OldEntry(msgspec.Struct):
    revision: int
    at: float
    action: str
    control_planes: int
    workers: int
    changes: tuple[str, ...] = ()
    more: int = 0


MARK = Mark(
    operator="41",
    source="handoff",
    reason="wish",
    step="EvictLeaders",
    since=1767225600.0,
    detail="annotation tidb.pingcap.com/restart",
    pod="tidb/demo-tikv-0",
    pod_uid="u-1",
    pod_create_time="2026-01-01T00:00:00Z",
    store_id=4,
    node="n1",
    machine="m1",
    value="delete-pod",
    deadline=1767225720.0,
    restart="42",
    before={"evicting": "false"},
)
NOTE = memory.Note(until=9.0, attempts=2, last_move=8.0, begun=True, reason="mode", off_by=1, wanted="OOs")
PLACES = {"web-0": {"node": "n1"}, "web-1": {"node": "n2", "left": "n3"}}
DECISIONS = Decisions("7", (Member("10.0.0.1", True, None, "a"), Member("10.0.0.2", False, None, "b")))


def written() -> dict[str, str]:
    """Everything that this version stores, by name, as text."""
    return {
        "mark": write_mark(MARK),
        "marks": write_marks({"demo-tikv-0": MARK}) or "",
        "note": msgspec.json.encode(NOTE).decode(),
        "places": write_places(read_places({HOME: json.dumps(PLACES)})) or "",
        "decisions": encode_decisions(DECISIONS).decode(),
        "pending": write_pending(Pending({"10.0.0.2": 5.0})),
        "history": msgspec.json.encode((StoredChange(7, 5.0, "generate", 1, 1, ("add 10.0.0.2: spare",), 3),)).decode(),
    }


OLD_READERS = {
    "mark": OldMark,
    "marks": dict[str, OldMark],
    "note": OldNote,
    "places": dict[str, OldPlace],
    "decisions": OldStored,
    "history": tuple[OldEntry, ...],
    "pending": OldPending,
}


@pytest.mark.parametrize("name", sorted(OLD_READERS))
def test_the_previous_version_reads_what_this_one_writes(name):
    """N → N−1: the frozen reader finds in this version's text what it found in its own."""
    mine = msgspec.json.decode(written()[name], type=OLD_READERS[name])
    assert mine == msgspec.json.decode(GOLDEN[name], type=OLD_READERS[name])


def with_more(node):
    """As a later version may write it: every object has a field that nobody here knows."""
    if isinstance(node, dict):
        return {**{k: with_more(v) for k, v in node.items()}, "laterField": {"any": ["thing"]}}
    return [with_more(v) for v in node] if isinstance(node, list) else node


def later(name: str) -> str:
    """Maps by name (of pods) have no fields of their own: only what is in them grows."""
    node = json.loads(GOLDEN[name])
    grown = {k: with_more(v) for k, v in node.items()} if name in {"marks", "places"} else with_more(node)
    if name == "mark":
        grown["before"].pop("laterField")
    if name == "marks":
        grown["demo-tikv-0"]["before"].pop("laterField")
    return json.dumps(grown)


@pytest.mark.parametrize("of", [GOLDEN.get, later], ids=["the previous version's", "a later version's"])
def test_this_version_reads_what_others_wrote(of):
    """N−1 → N and N+1 → N: every value is found again, and unknown fields disturb nothing."""
    assert read_mark(of("mark")) == MARK
    assert read_marks(of("marks")) == {"demo-tikv-0": MARK}
    assert memory.read(config_map({"w": of("note")}), "w") == NOTE
    assert json.loads(write_places(read_places({HOME: of("places")}))) == PLACES
    data = {"decisions": of("decisions"), "revision": "7", "pending.json": of("pending"), "history.json": of("history")}
    ledger = read_ledger(config_map(data))
    assert not isinstance(ledger, str), ledger
    assert (ledger.decisions.members, ledger.revision) == (DECISIONS.members, 7)
    assert ledger.pending == Pending({"10.0.0.2": 5.0})
    assert ledger.history == (StoredChange(7, 5.0, "generate", 1, 1, ("add 10.0.0.2: spare",), 3),)


def config_map(data) -> ConfigMap:
    return ConfigMap(namespace="mooring-system", name="x", uid="u", resource_version="1", data=data)


def test_what_is_of_another_shape_is_left_alone():
    """A stored cluster with a version that is not ours is named and not touched; a mark that cannot be read neither."""
    other = json.dumps([99, *json.loads(GOLDEN["decisions"])[1:]])
    assert "version 99" in str(read_ledger(config_map({"decisions": other})))
    assert read_mark('{"operator": 7}') is None


def old_certificates(secret):
    """0.1.0's reading of the webhook's Secret: authorities (newest first), leaf, and when the last step was taken."""
    data = {name: base64.b64decode(secret["data"][name], validate=True) for name in ("ca.crt", "tls.crt")}
    for name, certificate in (("ca.key", data["ca.crt"]), ("tls.key", data["tls.crt"])):
        key = load_pem_private_key(base64.b64decode(secret["data"][name], validate=True), None)
        assert key.public_key() == x509.load_pem_x509_certificate(certificate).public_key()
    authorities = x509.load_pem_x509_certificates(data["ca.crt"])
    leaf = x509.load_pem_x509_certificate(data["tls.crt"])
    return authorities, leaf, float(secret["metadata"]["annotations"]["mooring.dev/rotated-at"])


def test_the_previous_version_goes_on_with_a_rotation_of_this_one():
    """The Secret at rest and in the middle of a rotation: two authorities, the newest first and with its key, and a leaf
    that one of them vouches for."""

    async def scenario(rig):
        keeper = WebhookReconciler(
            rig.api, rig.clock, ReloadingTls(), WebhookAddress("mooring-system"), leads=lambda: True
        )

        async def looked(count):
            await keeper.turn()
            authorities, leaf, since = old_certificates(await rig.api.get(Kind.SECRET, "mooring-system", TLS_SECRET))
            assert len(authorities) == count and since <= rig.clock.now()
            assert any(leaf.issuer == one.subject for one in authorities)
            return authorities, leaf

        (old,), leaf = await looked(1)
        await rig.api.delete(Kind.SECRET, "mooring-system", TLS_SECRET)
        (new, kept), same = await looked(2)
        assert kept == old and same == leaf and new != old
        await rig.sleep(SETTLED_S)
        _, leaf = await looked(2)
        assert leaf.issuer == new.subject
        await rig.sleep(SETTLED_S)
        assert (await looked(1))[0] == [new]

    Rig(config=Config(features={"mix": True})).play(scenario)
