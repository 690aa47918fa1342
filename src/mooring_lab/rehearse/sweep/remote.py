"""A sweep on an existing Dask cluster: the snapshot is scattered once, each event is a part (`sim.dask`).

The process beside a worker loads the snapshot and lets Mooring come up on it once, and forks for each event, as on one
machine.
"""

from collections.abc import Iterator, Sequence

import msgspec

from mooring_lab.rehearse.events.failures import Failure
from mooring_lab.rehearse.snapshot.schema import Snapshot
from mooring_lab.rehearse.sweep.forks import Failed
from mooring_lab.rehearse.sweep.sweep import Found, SweepPlan, Told, run
from mooring_lab.stage.dask import Asked, Lost, on_dask


class Work(msgspec.Struct, frozen=True):
    snapshot: Snapshot
    plan: SweepPlan


class WorkerAnswer(msgspec.Struct, frozen=True):
    found: Found | None = None
    failed: Failed | None = None


def run_on_dask(snapshot: Snapshot, todo: Sequence[Failure], plan: SweepPlan, address: str, told: Told) -> bool:
    """As `sweep.run`. False: interrupted; what was told is all there is."""
    work = msgspec.msgpack.encode(Work(snapshot, plan))
    answers = on_dask(address, __name__, work, [msgspec.msgpack.encode(one) for one in todo])
    try:
        for number, body in answers:
            told(todo[number], Failed(body.why) if isinstance(body, Lost) else _result(body))
    except KeyboardInterrupt:
        answers.close()  # type: ignore[attr-defined]
        return False
    return True


def _result(body: bytes) -> Found | Failed:
    answer = msgspec.msgpack.decode(body, type=WorkerAnswer)
    return answer.found or answer.failed or Failed("nothing was answered")


def main() -> None:
    """Beside a worker."""
    from mooring.process import logs  # noqa: PLC0415 - of this process alone

    logs.configure("critical", "auto")
    asked = Asked()
    work = msgspec.msgpack.decode(asked.work, type=Work)

    def todo() -> Iterator[Failure]:
        for part in asked.parts():
            yield msgspec.msgpack.decode(part, type=Failure)

    def told(_failure: Failure, result: Found | Failed) -> None:
        found = WorkerAnswer(found=result) if isinstance(result, Found) else WorkerAnswer(failed=result)
        asked.answer(msgspec.msgpack.encode(found))

    run(work.snapshot, todo(), work.plan, 1, told)


if __name__ == "__main__":
    main()
