"""Which of the detached pods of a workload goes, while one has been told to go and still seems to serve."""

from mooring.capabilities.mix.pace import InterruptionPolicy, RebalancePolicy
from mooring.capabilities.mix.rebalance.detached import going_first
from mooring.capabilities.mix.rebalance.health import Health
from mooring.capabilities.mix.rebalance.move import DETACH, MoveSituation, _may_go, operator
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Pod, PodShape, Workload
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason
from mooring.core.queue import Queue

WEB = Workload(Kind.DEPLOYMENT, "shop", "web", "w1", "1", replicas=2)


def detached(name):
    return Pod("shop", name, f"uid-{name}", "1", PodShape(), node="s1", ready=True)


def test_a_pod_that_is_detached_while_another_goes_does_not_take_its_place():
    """M6: one Ready pod more than wanted, and its deletion is on its way: a second one that is detached now stays,
    whatever its name."""
    queue = Queue()
    first, second = detached("web-z"), detached("web-a")
    for pod in (first, second):
        wanted = {
            "source": "mix",
            "way": DETACH,
            "reason": Reason.WRONG_CLASS,
            "detail": "",
            "wanted": NodeClass.ON_DEMAND,
        }
        queue.resume(operator(pod, WEB, id_=pod.name, deadline=None, takes_room=False, **wanted))
    queue.records.by_id["web-z"].step = 1
    situation = MoveSituation(
        op=queue.get("web-a"),
        world=None,
        rebalance=RebalancePolicy(),
        notice=InterruptionPolicy(),
        now=0.0,
        health=Health(WEB, (), 1),
        detached=going_first((second, first), queue),
    )
    assert _may_go(situation, first) and not _may_go(situation, second)
