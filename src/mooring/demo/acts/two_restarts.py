"""10:25: two restarts in the same second wait for each other."""

from mooring.capabilities.handoff.requests import RESTART
from mooring.core.engine.why import Explanation, explain
from mooring.core.model.reasons import State
from mooring.demo.acts.restart import nothing_left, uid_of
from mooring.demo.stage import DEMO, TIDB, Check, DemoStage

FIRST, SECOND = f"{DEMO}-tikv-0", f"{DEMO}-tikv-1"


class TwoRestarts:
    at = "10:25"
    speed = 6.0
    title = "two restarts in the same second"
    command = f'kubectl -n {TIDB} annotate pod {FIRST} {SECOND} {RESTART}=""'

    async def play(self, stage: DemoStage) -> list[Check]:
        before = {name: uid_of(stage, name) for name in (FIRST, SECOND)}
        pd = stage.cluster.pd[TIDB, DEMO]
        interrupted = len(pd.interruptions)
        await stage.kubectl(self.command)
        answer: Explanation | None = None
        most_away = 0

        def done() -> bool:
            nonlocal most_away, answer
            if answer is None and (answer := _waits(stage)) is not None:
                stage.say(answer.answer)
            ready = stage.cluster.ready(TIDB, f"{DEMO}-tikv")
            most_away = max(most_away, 3 - ready)
            new = all(uid_of(stage, name) not in {"", uid} for name, uid in before.items())
            return new and ready == 3 and not nothing_left(stage)

        await stage.rig.until(done)
        waited = answer is not None
        return [
            Check("E7", most_away == 1, f"at most {most_away} away at once"),
            Check("T4", waited, "the second waited for the first, and `why` named it"),
            Check(
                "T11",
                waited,
                answer.waiting_on.sum() if answer is not None and answer.waiting_on is not None else "no sum",
            ),
            Check("E6", len(pd.interruptions) == interrupted, "no leader was on a pod when it went"),
        ]


def _waits(stage: DemoStage) -> Explanation | None:
    """What `why` says of the second, once it waits for the first."""
    leader = stage.rig.leader()
    answer = explain(leader.engine, f"pod/{TIDB}/{SECOND}") if leader is not None else None
    return answer if answer is not None and answer.state == State.WAITING and answer.waiting_on is not None else None
