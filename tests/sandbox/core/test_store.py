"""The store: its indexes against a rebuild, its events against its state, its parts shared."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mooring.clients.ports import ConflictError, PortError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline

NAMES = st.sampled_from(["a", "b", "c"])
NODES = st.sampled_from(["", "n1", "n2"])
OWNERS = st.sampled_from(["", "o1", "o2"])


def pod(name: str, node: str = "", owner: str = "", **metadata) -> dict:
    spec = {"containers": [{"name": "c", "image": "x"}]} | ({"nodeName": node} if node else {})
    if owner:
        # An owner of a kind that is not kept here is taken to live.
        metadata["ownerReferences"] = [{"kind": "Stranger", "name": owner, "uid": owner, "controller": True}]
    return {"metadata": {"name": name, "namespace": "ns", **metadata}, "spec": spec}


class Histories(RuleBasedStateMachine):
    """Any sequence of writes leaves events that replay to the same state, and indexes equal to a rebuild."""

    def __init__(self) -> None:
        super().__init__()
        self.timeline = Timeline()
        self.store = ObjectStore(self.timeline, 1)
        self.replayed: dict = {}
        self.revisions: list[int] = []
        self.store.subscribe(Kind.POD, self.heard)

    def heard(self, event: str, old: dict | None, new: dict | None) -> None:
        obj = new or old
        self.revisions.append(int(obj["metadata"]["resourceVersion"]))
        if event == "ADDED":
            assert obj["metadata"]["name"] not in self.replayed
        if event == "MODIFIED":
            assert self.replayed[obj["metadata"]["name"]] is old
        if new is None:
            del self.replayed[obj["metadata"]["name"]]
        else:
            self.replayed[obj["metadata"]["name"]] = new

    def attempt(self, fn) -> None:
        before = self.store.revision
        try:
            fn()
        except PortError:
            assert self.store.revision == before, "a refused write changed something"

    @rule(name=NAMES, node=NODES, owner=OWNERS, held=st.booleans())
    def create(self, name, node, owner, held):
        metadata = {"finalizers": ["x/y"]} if held else {}
        self.attempt(lambda: self.store.create(Kind.POD, pod(name, node, owner, **metadata)))

    @rule(name=NAMES, node=NODES)
    def move(self, name, node):
        self.store.mutate(Kind.POD, "ns", name, lambda o: {**o, "spec": {**o["spec"], "nodeName": node}})

    @rule(name=NAMES, owner=OWNERS)
    def adopt(self, name, owner):
        references = pod(name, "", owner)["metadata"].get("ownerReferences")
        self.attempt(lambda: self.store.patch(Kind.POD, "ns", name, {"metadata": {"ownerReferences": references}}))

    @rule(name=NAMES)
    def release(self, name):
        self.attempt(lambda: self.store.patch(Kind.POD, "ns", name, {"metadata": {"finalizers": None}}))

    @rule(name=NAMES, grace=st.sampled_from([None, 0, 10]), uid=st.sampled_from(["", "wrong"]))
    def delete(self, name, grace, uid):
        self.attempt(lambda: self.store.delete(Kind.POD, "ns", name, grace_s=grace, uid=uid))

    @rule(name=NAMES)
    def remove(self, name):
        self.store.remove(Kind.POD, "ns", name)

    @invariant()
    def events_replay_to_the_state(self):
        assert self.replayed == {o["metadata"]["name"]: o for o in self.store.list(Kind.POD)}
        assert self.revisions == sorted(set(self.revisions))

    @invariant()
    def indexes_equal_a_rebuild(self):
        pods = self.store.list(Kind.POD)
        for node in ("n1", "n2"):
            assert self.store.pods_on(node) == [p for p in pods if p["spec"].get("nodeName") == node]
        for owner in ("o1", "o2"):
            owned = [p for p in pods if any(r["uid"] == owner for r in p["metadata"].get("ownerReferences") or ())]
            assert self.store.pods_of(owner) == owned

    @invariant()
    def nothing_unheld_waits_with_no_grace_left(self):
        for p in self.store.list(Kind.POD):
            metadata = p["metadata"]
            if metadata.get("deletionGracePeriodSeconds") == 0:
                assert metadata.get("finalizers")


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_a_subscriber_that_writes_does_not_shuffle_events():
    """UnmanagedPods hears of the first write before anybody hears of the one it caused."""
    store, heard = ObjectStore(Timeline()), []

    def eager(event, old, new):
        if event == "ADDED":
            store.patch(Kind.CONFIG_MAP, "default", "x", {"data": {"a": "1"}})

    store.subscribe(Kind.CONFIG_MAP, eager)
    store.subscribe(Kind.CONFIG_MAP, lambda event, old, new: heard.append(event))
    store.create(Kind.CONFIG_MAP, {"metadata": {"name": "x"}})
    assert heard == ["ADDED", "MODIFIED"]


def test_pods_of_one_template_share_their_parts():
    """150,000 pods must fit into 1 GB: equal containers are one object, however they came in."""
    store = ObjectStore(Timeline())
    first, second = (store.create(Kind.POD, pod(name, node)) for name, node in (("a", "n1"), ("b", "n2")))
    assert first["spec"]["containers"] is second["spec"]["containers"]
    assert first["spec"]["tolerations"] is second["spec"]["tolerations"]


def test_what_a_reader_holds_never_changes():
    """Copy-on-write: an object once read stays as it was read."""
    store = ObjectStore(Timeline())
    held = store.create(Kind.POD, pod("a"))
    labels_before = dict(held["metadata"])
    store.patch(Kind.POD, "ns", "a", {"metadata": {"labels": {"x": "1"}}})
    store.delete(Kind.POD, "ns", "a")
    assert held["metadata"] == labels_before


def test_an_object_born_after_its_owner_died_goes_too():
    """A controller that was late leaves nothing behind."""
    store = ObjectStore(Timeline())
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "gone", "controller": True}
    store.create(Kind.POD, {**pod("late"), "metadata": {"name": "late", "ownerReferences": [reference]}})
    store.timeline.run_for(5)
    assert store.list(Kind.POD) == []


def test_update_checks_before_it_writes():
    """A stale resourceVersion is a Conflict whatever else is in the object."""
    store = ObjectStore(Timeline())
    first = store.create(Kind.CONFIG_MAP, {"metadata": {"name": "x"}})
    store.update(Kind.CONFIG_MAP, {**first, "data": {"a": "1"}})
    with pytest.raises(ConflictError):
        store.update(Kind.CONFIG_MAP, {**first, "data": {"a": "2"}})
