"""Repair after an admission gap: the leader is killed, and 120 pods are created before the other replica leads.

On the sandbox and its virtual time: what is measured is the pace that we choose, not this machine. Every pod lands on
spot; 61 of 120 belong on on-demand nodes. Health holds throughout: never more away than the Deployment's own
maxUnavailable (25 %), and no more at once than `rebalance.at-once`.
"""

import logging

import structlog

PODS, START_S = 120, 3.0
TARGET_S = 60.0


def repair(pods: int = PODS) -> tuple[float, int, int]:
    """Seconds from the end of the gap to the exact split, the most pods away at once, and the moves."""
    from mooring.process.settings.config import Config
    from mooring_lab.stage.rig import Rig
    from mooring_lab.stage.scenarios.mix import NAMESPACE, admitting, physical, slow_template, switched_on

    rig, found = Rig(seed=1, config=Config(features={"mix": True})), [0.0, 0]
    soft = [{"key": "dear", "effect": "PreferNoSchedule"}]
    rig.cluster.add_nodes(8, "n", capacity="on-demand", taints=soft)
    rig.cluster.add_nodes(8, "s", capacity="spot")

    async def scenario(rig: Rig) -> None:
        first = rig.start("first")
        await admitting(rig)
        rig.start("second")
        await rig.sleep(5.0)
        rig.kill(first.identity)
        labels, template = switched_on("majority-in-on-demand"), slow_template("web", START_S)
        rig.cluster.deployment(NAMESPACE, "web", pods, labels=labels, template=template)
        await rig.until(rig.leads)
        await rig.until(lambda: rig.cluster.ready(NAMESPACE, "web") == pods)
        began, most = rig.clock.monotonic(), 0

        def exact() -> bool:
            nonlocal most
            ready = rig.cluster.ready(NAMESPACE, "web")
            most = max(most, pods - ready)
            return ready == pods and physical(rig, "web").count("on-demand") == pods // 2 + 1

        await rig.until(exact, 3600.0)
        found[:] = [rig.clock.monotonic() - began, most]

    rig.play(scenario)
    moves = sum(w.startswith(("evict Pod", "delete Pod")) for w in rig.writes)
    return found[0], int(found[1]), moves


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    took, most, moves = repair()
    verdict = "ok" if took <= TARGET_S else "TOO SLOW"
    print(f"repair after a gap, {PODS} pods  {took:6.0f} s   target {TARGET_S:g} s   {verdict}")
    print(f"   {moves} moves, at most {most} pods away at once")


if __name__ == "__main__":
    main()
