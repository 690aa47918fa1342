"""Faults: what goes wrong between Mooring and its outside, and inside its own process."""

from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, LEAVING, RESERVED_TAINT, RETIRING
from mooring_lab.cluster.apiserver.faults import Fault, FaultRates
from mooring_lab.cluster.pd import SandboxPd
from mooring_lab.events.context import Apply, Draw, EventContext, Target

#: A lag no longer than a lease: what is seen is old, and the one who sees it still leads.
LONGEST_LAG_S = 30.0


def watches_cut(on: EventContext, target: Target, draw: Draw) -> str:
    kind = None if draw.a < 0.5 else list(Kind)[int(draw.b * len(Kind))]
    on.stage.api.faults.cut_watches(kind)
    return str(kind or "all")


def _late(on: EventContext, lag_s: float, lasts_s: float, *kinds: Kind) -> str:
    on.stage.lag_watches(lag_s, *kinds)
    on.excuses.lag_s = max(on.excuses.lag_s, lag_s)

    def over() -> None:
        on.stage.lag_watches(0.0, *kinds)
        on.after(lag_s + 1.0, lambda: setattr(on.excuses, "lag_s", 0.0))

    on.after(lasts_s, over)
    engine = on.engine()
    if engine is not None and engine.running:
        on.hit("watch-lagged-during-operator")
    return f"by {lag_s:.1f} s for {lasts_s:.0f} s"


def watches_late(on: EventContext, target: Target, draw: Draw) -> str:
    return _late(on, 0.5 + draw.a * LONGEST_LAG_S, 20 + draw.b * 120)


def pod_watch_late(on: EventContext, target: Target, draw: Draw) -> str:
    return _late(on, 0.5 + draw.a * LONGEST_LAG_S, 20 + draw.b * 120, Kind.POD)


def history_compacted(on: EventContext, target: Target, draw: Draw) -> str:
    on.stage.api.faults.expired_as_status = draw.a < 0.5
    kind = None if draw.a < 0.5 else list(Kind)[int(draw.b * len(Kind))]
    on.stage.api.faults.compact(kind)
    return str(kind or "all")


def writes_troubled(on: EventContext, target: Target, draw: Draw) -> str:
    faults = on.stage.api.faults
    rate = draw.a * 0.25
    faults.rates = FaultRates(lost_request=rate, lost_answer=rate, conflict=rate, throttled=rate / 2, slow=0.05)
    on.after(20 + 100 * draw.b, lambda: setattr(faults, "rates", FaultRates()))
    return f"{rate:.2f} for {20 + 100 * draw.b:.0f} s"


def answers_lost(on: EventContext, target: Target, draw: Draw) -> str:
    on.stage.api.faults.arm(Fault.LOST_ANSWER, times=1 + int(draw.a * 3))
    return str(1 + int(draw.a * 3))


def requests_lost(on: EventContext, target: Target, draw: Draw) -> str:
    on.stage.api.faults.arm(Fault.LOST_REQUEST, times=1 + int(draw.a * 3))
    return str(1 + int(draw.a * 3))


def server_dead(on: EventContext, target: Target, draw: Draw) -> str:
    seconds = draw.seconds or 1 + draw.a * 40
    on.stage.api.faults.dead_for(seconds)
    on.excuses.blind_until = max(on.excuses.blind_until, on.now + seconds)
    return f"{seconds:.0f} s"


def server_slow(on: EventContext, target: Target, draw: Draw) -> str:
    on.stage.api.faults.slow_for(10 + draw.a * 60, each_s=0.2 + 2 * draw.b)
    on.excuses.blind_until = max(on.excuses.blind_until, on.now + 10 + draw.a * 60)
    return f"{10 + draw.a * 60:.0f} s"


# ── PD and the registry ───────────────────────────────────────────────────────────────────────────────────────────


def _pd(on: EventContext, target: Target, draw: Draw) -> SandboxPd | None:
    found = on.pick(sorted(on.stage.cluster.pd.items()), target, draw)
    return found[1] if found is not None else None


def pd_restarts(on: EventContext, target: Target, draw: Draw) -> str:
    pd = _pd(on, target, draw)
    if pd is None or pd.away:
        return ""
    if set(pd.server.evict_list() or ()) - {store for _, store in on.edits.evicts}:
        on.hit("pd-restarted-during-eviction")
    pd.restart(1 + 10 * draw.b, regions_known=draw.b < 0.5)
    return pd.cluster


def pd_loses_leader(on: EventContext, target: Target, draw: Draw) -> str:
    pd = _pd(on, target, draw)
    if pd is None or pd.away:
        return ""
    pd.lose_leader()
    return pd.cluster


def pd_dark(on: EventContext, target: Target, draw: Draw) -> str:
    pd = _pd(on, target, draw)
    if pd is None or pd.away:
        return ""
    seconds = draw.seconds or 5 + 60 * draw.b
    if draw.seconds or int(draw.b * 100) % 4:
        pd.go_dark(seconds)
        return f"{pd.cluster} for {seconds:.0f} s"
    pd.refuse_tls(seconds)
    return f"{pd.cluster} for {seconds:.0f} s, by its certificate"


def pd_slow(on: EventContext, target: Target, draw: Draw) -> str:
    pd = _pd(on, target, draw)
    if pd is None:
        return ""
    pd.slow(0.5 + 6 * draw.b)
    on.after(60.0, lambda: pd.slow(0.0))
    return f"{pd.cluster} {0.5 + 6 * draw.b:.1f} s"


def pd_answers_lost(on: EventContext, target: Target, draw: Draw) -> str:
    pd = _pd(on, target, draw)
    if pd is None:
        return ""
    pd.lose_answers(1 + int(2 * draw.b))
    return pd.cluster


def pd_requests_lost(on: EventContext, target: Target, draw: Draw) -> str:
    pd = _pd(on, target, draw)
    if pd is None:
        return ""
    pd.lose_requests(1 + int(2 * draw.b))
    return pd.cluster


def registry_dark(on: EventContext, target: Target, draw: Draw) -> str:
    on.stage.cluster.sabakan.go_dark(10 + 100 * draw.a)
    return f"{10 + 100 * draw.a:.0f} s"


def registry_slow(on: EventContext, target: Target, draw: Draw) -> str:
    on.stage.cluster.sabakan.slow(1 + 7 * draw.a)
    on.after(60.0, lambda: on.stage.cluster.sabakan.slow(0.0))
    return f"{1 + 7 * draw.a:.1f} s"


# ── Clocks, ourselves ──────────────────────────────────────────────────────────────────────────────────────


def clock_jumps(on: EventContext, target: Target, draw: Draw) -> str:
    seconds = (draw.a - 0.4) * (10 if draw.b < 0.7 else 120)
    on.stage.api.faults.jump_clock(seconds)
    return f"{seconds:+.1f} s"


def _on_kill(on: EventContext) -> None:
    """What is half done at this moment?"""
    hit = on.hit
    if on.objects(Kind.TIDB_CLUSTER, HANDOFF):
        hit("killed-between-mark-and-deletion")
    if any(pd.server.evict_list() for pd in on.stage.cluster.pd.values()):
        hit("killed-with-scheduler-in-pd")
    if any(not p["metadata"].get("ownerReferences") for p in on.objects(Kind.POD, LEAVING)):
        hit("killed-with-detached-pod")
    if on.objects(Kind.NODE, RETIRING):
        hit("killed-while-retiring")
    if on.objects(Kind.NODE, RESERVED_TAINT):
        hit("killed-while-node-reserved")


def _replace(on: EventContext) -> None:
    """The Deployment of Mooring starts another pod a few seconds later."""
    on.excuses.leader_changed = on.now
    on.after(3.0, lambda: on.start_replica() if len(on.stage.replicas) < on.replica_count else None)


def leader_killed(on: EventContext, target: Target, draw: Draw) -> str:
    leader = on.stage.leader()
    if leader is None:
        return ""
    _on_kill(on)
    on.stage.kill(leader.identity)
    _replace(on)
    return leader.identity


def _kill_at(on: EventContext, draw: float, when: str) -> str:
    number = 1 + int(draw * 6)
    on.stage.kill_at(len(on.stage.writes) + number, when)

    def dead() -> None:
        _on_kill(on)
        _replace(on)

    on.on_death = dead
    return f"{number} writes from now"


def leader_killed_before_write(on: EventContext, target: Target, draw: Draw) -> str:
    return _kill_at(on, draw.a, "before")


def leader_killed_after_write(on: EventContext, target: Target, draw: Draw) -> str:
    return _kill_at(on, draw.a, "after")


def leader_paused(on: EventContext, target: Target, draw: Draw) -> str:
    """SIGSTOP and SIGCONT: for a moment there are two leaders."""
    leader = on.stage.leader()
    if leader is None:
        return ""
    name = leader.identity
    on.stage.pause(name)

    def resume() -> None:
        if name in on.stage.replicas:
            if on.stage.leader() is not None:
                on.hit("two-leaders")
            on.excuses.resumed[name] = on.excuses.leader_changed = on.now
            on.stage.resume(name)

    on.after(2 + 60 * draw.a, resume)
    return f"{name} for {2 + 60 * draw.a:.0f} s"


def webhook_away(on: EventContext, target: Target, draw: Draw) -> str:
    on.stage.webhook_away = True
    on.after(5 + 60 * draw.a, lambda: setattr(on.stage, "webhook_away", False))
    return f"{5 + 60 * draw.a:.0f} s"


EVENTS: dict[str, Apply] = {
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
    "clock-jumps": clock_jumps,
    "leader-killed": leader_killed,
    "leader-killed-before-write": leader_killed_before_write,
    "leader-killed-after-write": leader_killed_after_write,
    "leader-paused": leader_paused,
    "webhook-away": webhook_away,
}
