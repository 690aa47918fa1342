"""Days of chance: requests come and go, PD and our process fail, nodes are closed and opened, persons evict stores of their
own. Whatever the order: no leader is interrupted, never two members away, and at the end nothing of ours is left."""

import random

import pytest

from mooring.capabilities.handoff.mark import rfc3339
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, Mark, write_mark
from mooring.sandbox.pd import requests
from mooring.sandbox.pd.settings import PdSettings
from tests.capabilities.handoff.handoff_stage import NS, Stage

VALUES = ("", "none", "delete-pod", "odd")


class Day:
    def __init__(self, stage, seed):
        self.stage = stage
        self.chance = random.Random(seed)
        #: Stores that a person evicts.
        self.persons = set()

    def nodes(self):
        return sorted(n["metadata"]["name"] for n in self.stage.cluster.store.list(Kind.NODE))

    def member(self):
        """One whose pod is there."""
        there = [i for i in range(self.stage.counts["tikv"]) if self.stage.pod(i) is not None]
        return self.chance.choice(there) if there else None

    # ── What may happen ───────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, i):
        self.stage.annotate(i, restart=self.chance.choice(VALUES))

    def evict(self, i):
        self.stage.annotate(i, evict_leader=self.chance.choice(VALUES))

    def ask_for_a_while(self, i):
        at = self.stage.cluster.timeline.now() + self.chance.uniform(0, 40)
        self.stage.annotate(i, restart="", tikv_evict_leader_expiration_time=rfc3339(at))

    def forget(self, i):
        self.stage.annotate(i, restart=None, evict_leader=None)

    def notice(self, i):
        deadline = self.chance.choice((None, self.stage.cluster.timeline.now() + 60))
        mark = Mark(
            operator="9", source="fleet", reason="notice", step="leaving", since=0.0, pod_uid=self.stage.uid(i),
            deadline=deadline,
        )  # fmt: skip
        self.stage.cluster.annotate(Kind.POD, NS, self.stage.member(i), {LEAVING: write_mark(mark)})

    def take_back(self, i):
        self.stage.cluster.annotate(Kind.POD, NS, self.stage.member(i), {LEAVING: None})

    def person(self, i):
        """pd-ctl, on a store that nobody hands over."""
        if not self.persons and not self.stage.marks() and not self.stage.rig.unsettled():
            requests.add_evict_leader(self.stage.pd.server, i + 1)
            self.persons = {i + 1}

    def person_ends(self, _):
        marked = {m.store_id for m in self.stage.marks().values()}
        for store in self.persons - marked:
            requests.remove_evict_leader(self.stage.pd.server, store)
            self.persons.discard(store)

    def pd_fails(self, _):
        what = self.chance.choice((self.stage.pd.restart, lambda: self.stage.pd.go_dark(20.0)))
        what()

    def we_fail(self, _):
        if self.stage.rig.replicas:
            self.stage.rig.kill()
        self.stage.rig.start()

    def cordon(self, _):
        self.stage.cluster.cordon(self.chance.choice(self.nodes()), on=self.chance.random() < 0.3)

    async def pass_by(self):
        deeds = (
            *(self.ask, self.evict, self.ask_for_a_while, self.forget, self.forget) * 2,
            *(self.notice, self.take_back, self.person, self.person_ends, self.pd_fails, self.we_fail, self.cordon),
        )
        for _ in range(40):
            member = self.member()
            if member is not None:
                self.chance.choice(deeds)(member)
            await self.stage.rig.sleep(self.chance.choice((0.3, 1.0, 4.0, 15.0)))

    async def end(self):
        s = self.stage
        for node in self.nodes():
            s.cluster.cordon(node, on=False)
        for _ in range(3):  # pods that are away now may come back with a request
            await s.rig.until(s.ready, limit_s=300)
            for i in range(s.counts["tikv"]):
                if s.pod(i) is not None:
                    self.forget(i)
                    self.take_back(i)
            await s.rig.sleep(60)
        self.person_ends(None)
        await s.rig.until(lambda: s.ready() and not s.marks() and not s.status(), limit_s=300)
        await s.rig.until(lambda: set(s.evicting()) == self.persons, limit_s=120)


@pytest.mark.parametrize("seed", range(1, 9))
def test_any_day(seed):
    """E5, E6, E7, O5: invariants hold every second, and the evening finds PD, mark and status as the morning did."""
    stage = Stage(
        seed=seed,
        tikv=4,
        nodes=6,
        settings=PdSettings(transfer_s=(0.2, 0.8)),
        policy=HandoffPolicy(recheck_s=5.0, idle_s=20.0, young_pd_s=10.0, timeout_s=120.0),
    )

    async def scene(s):
        day = Day(s, seed)
        await day.pass_by()
        await s.rig.until(s.rig.leads, limit_s=120)
        await day.end()

    stage.play(scene)
    assert stage.pd.interruptions == []
    assert stage.most_away <= 1
    assert stage.deletions(), "a day on which nothing happens shows nothing"
