"""A feature is switched off in the middle of something, and its rights go with it: who tells, and how it ends."""

import msgspec
import pytest

from mooring.cli import cleanup as command
from mooring.clients.ports import RefusedError
from mooring.core.model.cluster import Key, Node, Taint
from mooring.core.model.exits import Exit, UserError
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY, HANDOFF, RESERVED_TAINT, Mark, write_mark
from mooring.install.cleanup.leftovers import leftovers
from mooring.install.cleanup.remove import traces
from mooring.install.cleanup.run import refuse_what_runs
from mooring.install.doctor import running
from mooring.process.settings.config import Config


class WithoutRights:
    """What an API server is to an account whose rights were taken away: it may look, and lead."""

    def __init__(self, api):
        self._api = api

    def as_client(self, name):
        return WithoutRights(self._api.as_client(name))

    async def patch(self, kind, *args, **more):
        if kind in {Kind.POD, Kind.NODE, Kind.TIDB_CLUSTER}:
            raise RefusedError(f"{kind} is forbidden")
        return await self._api.patch(kind, *args, **more)

    async def evict(self, *_, **__):
        raise RefusedError("pods/eviction is forbidden")

    async def delete(self, kind, *args, **more):
        raise RefusedError(f"{kind} is forbidden")

    def __getattr__(self, name):
        return getattr(self._api, name)


def test_a_hand_over_whose_rights_are_gone_is_named_and_ended_by_a_person_while_mooring_runs(played, killed_hand_over):
    """The next leader reads the mark back and may not end it: a finding of its own although it "runs"; cleanup of that
    feature ends it, PD's scheduler first, and the leader lets go."""

    async def scenario(rig):
        pd = await killed_hand_over(rig)
        rights, rig.api = rig.api, WithoutRights(rig.api)
        rig.config = Config(features={"mix": True})
        leader = rig.start("without")
        await rig.until(rig.leads)
        await rig.sleep(60)
        assert leader.engine.running, "it was read back"

        async def looked_at():
            clusters = (await rights.list(Kind.TIDB_CLUSTER)).items
            return running.remains(leftovers([], [], clusters, set()), frozenset({"mix"}))

        (finding,) = await looked_at()
        assert finding.code == "MO703" and "handoff is off" in finding.seen and "tidb/demo" in finding.seen
        assert finding.fix.startswith("mooring cleanup --feature handoff --yes")
        for trace in await traces(rights, rig, "mooring-system"):
            if trace.feature == "handoff":
                assert await trace.undo() == "", trace.what
        assert await looked_at() == []
        assert not pd.server.evict_list()
        await rig.until(lambda: not leader.engine.running, limit_s=900)
        await rig.sleep(120)
        assert not pd.server.evict_list()
        after = await rights.get(Kind.TIDB_CLUSTER, "tidb", "demo")
        assert HANDOFF not in after["metadata"].get("annotations", {})
        assert await rights.get(Kind.LEASE, "mooring-system", "mooring"), "only what handoff began is gone"

    played(scenario)


def test_a_silent_pd_keeps_its_mark(played, killed_hand_over):
    """The scheduler could not be removed: the mark that tells of it stays, and the next cleanup finds it again."""

    async def scenario(rig):
        pd = await killed_hand_over(rig)

        class Silent:
            def pd(self, cluster):
                return self

            def given(self, cluster):
                return False

            def sharing(self, cluster):
                return ()

            async def stores(self, *_):
                return ()

            async def remove_evict_leader(self, store_id):
                raise RefusedError("no PD answers")

        (trace,) = [t for t in await traces(rig.api, Silent(), "mooring-system") if t.feature == "handoff"]
        assert "no PD answers" in await trace.undo()
        before = await rig.api.get(Kind.TIDB_CLUSTER, "tidb", "demo")
        assert HANDOFF in before["metadata"]["annotations"]
        (again,) = [t for t in await traces(rig.api, rig, "mooring-system") if t.feature == "handoff"]
        assert again.what == trace.what and await again.undo() == ""
        assert not pd.server.evict_list()

    played(scenario)


def node(**more):
    return msgspec.structs.replace(Node(name="n3", uid="u", resource_version="1"), **more)


def test_each_feature_is_told_by_its_own_marks():
    """A seat is home's, a cordon on notice mix's, a retiring machine's fleet's; one that is on is not spoken of."""

    def mark(source, **more):
        return write_mark(Mark(operator="7", source=source, reason="r", step="s", since=0.0, **more))

    seat = node(
        annotations={RESERVED_TAINT: mark("home", pod="tidb/demo-tidb-0")},
        taints=(Taint(RESERVED_TAINT, "NoSchedule", "demo-tidb-0"),),
    )
    ours = {"unschedulable": "false"}
    nodes = [
        seat,
        node(name="n4", annotations={CORDONED_BY: mark("spot", before=ours)}, unschedulable=True),
        node(name="n5", annotations={CORDONED_BY: mark("fleet", before=ours)}, unschedulable=True),
    ]
    standing = leftovers([], nodes, [], set())
    assert sorted((b.feature, b.what.partition(":")[0]) for b in standing) == [
        ("fleet", "node n5"),
        ("home", "node n3"),
        ("mix", "node n4"),
    ]
    assert [f.what for f in running.remains(standing, frozenset({"mix"}))] == ["what fleet began", "what home began"]
    assert running.remains(standing, frozenset({"fleet", "home", "mix"})) == []
    many = [msgspec.structs.replace(standing[0], feature="home")] * 5
    assert "and 2 more" in running.remains(many, frozenset())[0].seen
    assert Key("", "n3") == seat.key


def refusal(**status):
    """What `mooring cleanup --feature home` says when this is the status of the replica that answers."""
    with pytest.raises(UserError) as raised:
        refuse_what_runs(ANSWERS | status, frozenset({"home"}), "own")
    assert raised.value.code is Exit.REFUSED
    return str(raised.value)


ANSWERS = {"identity": "mooring-7c-x1_10.0.0.7:9443"}


def test_only_the_one_that_leads_is_believed():
    """A follower may be of another version of the settings: whoever asked is told the pod to ask instead."""
    told = refusal(leading=False, leader="mooring-8d-abc123_10.0.0.8:9443", features=[])
    assert "kubectl -n own port-forward pod/mooring-8d 8390" in told
    assert "home is on" in refusal(leading=True, leader="", features=["home", "mix"])
    refuse_what_runs(ANSWERS | {"leading": True, "leader": "", "features": ["mix"]}, frozenset({"home"}), "own")


def test_a_feature_that_does_not_exist_is_bad_usage():
    """Exit 2, with the names that there are."""
    with pytest.raises(UserError, match="one of balance, drain, fleet, handoff, home, mix") as raised:
        command.cleanup(feature=("hom",), dry_run=True)
    assert raised.value.code is Exit.USAGE
