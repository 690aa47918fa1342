"""Which moves of a workload stand in the queue, without asking the queue about each of its pods.

The queue knows who claims a pod; a look at a workload would have to ask for every one of them. What was proposed is
remembered here by workload instead. The queue's word counts: what it no longer holds (or never took) is forgotten.
"""

from collections.abc import Iterable

from mooring.capabilities.mix.rebalance.move import KIND
from mooring.core.model.cluster import Workload
from mooring.core.model.operator import Operator
from mooring.core.queue import Queue


class Moves:
    def __init__(self) -> None:
        #: "Deployment/shop/web" → the subjects of its moves, in order of proposal.
        self._subjects: dict[str, dict[str, None]] = {}

    def note(self, operators: Iterable[Operator]) -> None:
        """These were proposed, or read back from their marks."""
        for operator in operators:
            self._subjects.setdefault(operator.args["workload"], {})[operator.subject] = None

    def of(self, workload: Workload, queue: Queue) -> list[Operator]:
        """Those that wait or run, of every source."""
        name = f"{workload.kind}/{workload.namespace}/{workload.name}"
        subjects = self._subjects.get(name)
        if not subjects:
            return []
        found: list[Operator] = []
        for subject in tuple(subjects):
            holder = queue.holder(subject)
            if holder is None or holder.kind != KIND:
                del subjects[subject]
            elif holder.args["workload_uid"] == workload.uid:
                found.append(holder)
        if not subjects:
            del self._subjects[name]
        return found

    def clear(self) -> None:
        self._subjects.clear()
