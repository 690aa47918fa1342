"""Deeds of chance: what goes wrong between Mooring and its outside, and inside its own process."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, LEAVING, RESERVED_TAINT, RETIRING
from mooring.sandbox.apiserver.faults import Fault, FaultRates
from mooring.sandbox.pd import SandboxPd

if TYPE_CHECKING:
    from mooring.sim.whole.simulation import Simulation

#: A lag no longer than a lease: what is seen is old, and the one who sees it still leads.
LONGEST_LAG_S = 30.0


def watches_cut(sim: "Simulation", a: float, b: float) -> str:
    kind = None if a < 0.5 else list(Kind)[int(b * len(Kind))]
    sim.rig.api.faults.cut_watches(kind)
    return str(kind or "all")


def _late(sim: "Simulation", lag_s: float, lasts_s: float, *kinds: Kind) -> str:
    sim.rig.lag_watches(lag_s, *kinds)
    sim.watch.lag_s = max(sim.watch.lag_s, lag_s)

    def over() -> None:
        sim.rig.lag_watches(0.0, *kinds)
        sim.after(lag_s + 1.0, sim.watch.no_lag)

    sim.after(lasts_s, over)
    engine = sim.engine()
    if engine is not None and engine.running:
        sim.coverage.hit("watch-lagged-during-operator")
    return f"by {lag_s:.1f} s for {lasts_s:.0f} s"


def watches_late(sim: "Simulation", a: float, b: float) -> str:
    return _late(sim, 0.5 + a * LONGEST_LAG_S, 20 + b * 120)


def pod_watch_late(sim: "Simulation", a: float, b: float) -> str:
    return _late(sim, 0.5 + a * LONGEST_LAG_S, 20 + b * 120, Kind.POD)


def history_compacted(sim: "Simulation", a: float, b: float) -> str:
    sim.rig.api.faults.expired_as_status = a < 0.5
    kind = None if a < 0.5 else list(Kind)[int(b * len(Kind))]
    sim.rig.api.faults.compact(kind)
    return str(kind or "all")


def writes_troubled(sim: "Simulation", a: float, b: float) -> str:
    faults = sim.rig.api.faults
    rate = a * 0.25
    faults.rates = FaultRates(lost_request=rate, lost_answer=rate, conflict=rate, throttled=rate / 2, slow=0.05)
    sim.after(20 + 100 * b, lambda: setattr(faults, "rates", FaultRates()))
    return f"{rate:.2f} for {20 + 100 * b:.0f} s"


def answers_lost(sim: "Simulation", a: float, _: float) -> str:
    sim.rig.api.faults.arm(Fault.LOST_ANSWER, times=1 + int(a * 3))
    return str(1 + int(a * 3))


def requests_lost(sim: "Simulation", a: float, _: float) -> str:
    sim.rig.api.faults.arm(Fault.LOST_REQUEST, times=1 + int(a * 3))
    return str(1 + int(a * 3))


def server_dead(sim: "Simulation", a: float, _: float) -> str:
    sim.rig.api.faults.dead_for(1 + a * 40)
    sim.watch.blind_until = max(sim.watch.blind_until, sim.now + 1 + a * 40)
    return f"{1 + a * 40:.0f} s"


def server_slow(sim: "Simulation", a: float, b: float) -> str:
    sim.rig.api.faults.slow_for(10 + a * 60, each_s=0.2 + 2 * b)
    sim.watch.blind_until = max(sim.watch.blind_until, sim.now + 10 + a * 60)
    return f"{10 + a * 60:.0f} s"


# ── PD and the registry ───────────────────────────────────────────────────────────────────────────────────────────


def _pd(sim: "Simulation", draw: float) -> SandboxPd | None:
    found = sim.pick(sorted(sim.rig.cluster.pd.items()), draw)
    return found[1] if found is not None else None


def pd_restarts(sim: "Simulation", a: float, b: float) -> str:
    pd = _pd(sim, a)
    if pd is None or pd.away:
        return ""
    if set(pd.server.evict_list() or ()) - {store for _, store in sim.persons.evicts}:
        sim.coverage.hit("pd-restarted-during-eviction")
    pd.restart(1 + 10 * b, regions_known=b < 0.5)
    return pd.cluster


def pd_loses_leader(sim: "Simulation", a: float, _: float) -> str:
    pd = _pd(sim, a)
    if pd is None or pd.away:
        return ""
    pd.lose_leader()
    return pd.cluster


def pd_dark(sim: "Simulation", a: float, b: float) -> str:
    pd = _pd(sim, a)
    if pd is None or pd.away:
        return ""
    pd.go_dark(5 + 60 * b)
    return f"{pd.cluster} for {5 + 60 * b:.0f} s"


def pd_slow(sim: "Simulation", a: float, b: float) -> str:
    pd = _pd(sim, a)
    if pd is None:
        return ""
    pd.slow(0.5 + 6 * b)
    sim.after(60.0, lambda: pd.slow(0.0))
    return f"{pd.cluster} {0.5 + 6 * b:.1f} s"


def pd_answers_lost(sim: "Simulation", a: float, b: float) -> str:
    pd = _pd(sim, a)
    if pd is None:
        return ""
    pd.lose_answers(1 + int(2 * b))
    return pd.cluster


def pd_requests_lost(sim: "Simulation", a: float, b: float) -> str:
    pd = _pd(sim, a)
    if pd is None:
        return ""
    pd.lose_requests(1 + int(2 * b))
    return pd.cluster


def registry_dark(sim: "Simulation", a: float, _: float) -> str:
    sim.rig.cluster.sabakan.go_dark(10 + 100 * a)
    return f"{10 + 100 * a:.0f} s"


def registry_slow(sim: "Simulation", a: float, _: float) -> str:
    sim.rig.cluster.sabakan.slow(1 + 7 * a)
    sim.after(60.0, lambda: sim.rig.cluster.sabakan.slow(0.0))
    return f"{1 + 7 * a:.1f} s"


# ── Nodes, clocks, ourselves ──────────────────────────────────────────────────────────────────────────────────────


def node_silent(sim: "Simulation", a: float, b: float) -> str:
    kubelets = sim.rig.cluster.kubelets
    names = [n["metadata"]["name"] for n in sim.objects(Kind.NODE)]
    node = sim.pick([n for n in names if kubelets.silent_since(n) is None], a)
    if node is None:
        return ""
    kubelets.silence(node)
    sim.after(10 + 200 * b, lambda: _speaks_again(sim, node))
    return f"{node} for {10 + 200 * b:.0f} s"


def _speaks_again(sim: "Simulation", node: str) -> None:
    if sim.rig.cluster.store.find(Kind.NODE, "", node) is not None:
        sim.rig.cluster.kubelets.resume(node)


def clock_jumps(sim: "Simulation", a: float, b: float) -> str:
    seconds = (a - 0.4) * (10 if b < 0.7 else 120)
    sim.rig.api.faults.jump_clock(seconds)
    return f"{seconds:+.1f} s"


def _on_kill(sim: "Simulation") -> None:
    """What is half done at this moment?"""
    hit = sim.coverage.hit
    if sim.objects(Kind.TIDB_CLUSTER, HANDOFF):
        hit("killed-between-mark-and-deletion")
    if any(pd.server.evict_list() for pd in sim.rig.cluster.pd.values()):
        hit("killed-with-scheduler-in-pd")
    if any(not p["metadata"].get("ownerReferences") for p in sim.objects(Kind.POD, LEAVING)):
        hit("killed-with-detached-pod")
    if sim.objects(Kind.NODE, RETIRING):
        hit("killed-while-retiring")
    if sim.objects(Kind.NODE, RESERVED_TAINT):
        hit("killed-while-node-reserved")


def _replace(sim: "Simulation") -> None:
    """The Deployment of Mooring starts another pod a few seconds later."""
    sim.watch.change_of_leader()
    sim.after(3.0, lambda: sim.start_replica() if len(sim.rig.replicas) < sim.plan.shape.replicas else None)


def leader_killed(sim: "Simulation", _: float, __: float) -> str:
    leader = sim.rig.leader()
    if leader is None:
        return ""
    _on_kill(sim)
    sim.rig.kill(leader.identity)
    _replace(sim)
    return leader.identity


def _kill_at(sim: "Simulation", draw: float, when: str) -> str:
    number = 1 + int(draw * 6)
    sim.rig.kill_at(len(sim.rig.writes) + number, when)

    def dead() -> None:
        _on_kill(sim)
        _replace(sim)

    sim.watch.on_death = dead
    return f"{number} writes from now"


def leader_killed_before_write(sim: "Simulation", a: float, _: float) -> str:
    return _kill_at(sim, a, "before")


def leader_killed_after_write(sim: "Simulation", a: float, _: float) -> str:
    return _kill_at(sim, a, "after")


def leader_paused(sim: "Simulation", a: float, _: float) -> str:
    """SIGSTOP and SIGCONT: for a moment there are two leaders."""
    leader = sim.rig.leader()
    if leader is None:
        return ""
    name = leader.identity
    sim.rig.pause(name)

    def resume() -> None:
        if name in sim.rig.replicas:
            if sim.rig.leader() is not None:
                sim.coverage.hit("two-leaders")
            sim.watch.resumed(name)
            sim.rig.resume(name)

    sim.after(2 + 60 * a, resume)
    return f"{name} for {2 + 60 * a:.0f} s"


def webhook_away(sim: "Simulation", a: float, _: float) -> str:
    sim.rig.webhook_away = True
    sim.after(5 + 60 * a, lambda: setattr(sim.rig, "webhook_away", False))
    return f"{5 + 60 * a:.0f} s"


DEEDS: dict[str, Callable[["Simulation", float, float], str]] = {
    "watches-cut": watches_cut,
    "watches-late": watches_late,
    "pod-watch-late": pod_watch_late,
    "history-compacted": history_compacted,
    "writes-troubled": writes_troubled,
    "answers-lost": answers_lost,
    "requests-lost": requests_lost,
    "server-dead": server_dead,
    "server-slow": server_slow,
    "pd-restarts": pd_restarts,
    "pd-loses-leader": pd_loses_leader,
    "pd-dark": pd_dark,
    "pd-slow": pd_slow,
    "pd-answers-lost": pd_answers_lost,
    "pd-requests-lost": pd_requests_lost,
    "registry-dark": registry_dark,
    "registry-slow": registry_slow,
    "node-silent": node_silent,
    "clock-jumps": clock_jumps,
    "leader-killed": leader_killed,
    "leader-killed-before-write": leader_killed_before_write,
    "leader-killed-after-write": leader_killed_after_write,
    "leader-paused": leader_paused,
    "webhook-away": webhook_away,
}
