"""The gate and what it cannot know: an eviction passes in every doubt, and no review takes a pod away."""

import msgspec
import pytest

from mooring.core.model.reasons import Reason
from mooring.process.admission.reviewer import Reviewer

REVIEW = msgspec.json.encode(
    {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r1",
            "namespace": "shop",
            "name": "web-1",
            "operation": "CREATE",
            "subResource": "eviction",
            "userInfo": {"username": "anybody"},
            "object": {"metadata": {"namespace": "shop", "name": "web-1"}},
        },
    }
)


class Gate:
    """One that fails, or that does not decide."""

    decides = False

    def at_once(self, request):
        raise RuntimeError("a defect")


class Counter:
    def __init__(self):
        self.outcomes = []

    def count(self, _, labels):
        self.outcomes.append(labels["outcome"])


@pytest.mark.parametrize(
    ("ready", "leads", "outcome"),
    [(True, True, Reason.FAILED), (False, True, Reason.NOT_LEADER), (False, False, Reason.NOT_LEADER)],
    ids=["a defect", "not synced", "nobody leads"],
)
async def test_in_every_doubt_an_eviction_passes(ready, leads, outcome):
    """Issue 42, D3: whatever is not known, or goes wrong in here, holds nobody, and is counted."""
    clock, counter = [0.0], Counter()

    async def sleep(seconds):
        clock[0] += seconds

    reviewer = Reviewer(
        None, None, lambda: clock[0], None, counter, Gate(), leads=lambda: leads, ready=lambda: ready, sleep=sleep
    )
    answer = msgspec.json.decode(await reviewer.evictions(REVIEW))
    assert answer["response"] == {"uid": "r1", "allowed": True}
    assert counter.outcomes == [outcome] and clock[0] <= 2.5
