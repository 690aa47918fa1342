"""Which of the detached pods of a workload goes, while one has been told to go and still seems to serve."""

import msgspec

from mooring.capabilities.drain.replace_pod import Terms, going_before, mark_for, may_go
from mooring.capabilities.drain.request import DETACH, EVICT
from mooring.capabilities.mix.moves import move
from mooring.capabilities.mix.rebalance.detached import going_first
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Pod, PodShape, Workload
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, write_mark
from mooring.core.model.reasons import Reason
from mooring.core.queue import Queue
from mooring.core.world.world import World

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
        queue.resume(move(pod, WEB, id_=pod.name, deadline=None, takes_room=False, **wanted))
    queue.records.by_id["web-z"].step = 1
    terms = Terms(workload=WEB, ready=1, detached=going_first((second, first), queue))
    assert may_go(first, terms, World(), 0.0) and not may_go(second, terms, World(), 0.0)


def test_of_two_that_are_told_to_go_at_once_the_one_with_less_time_counts_as_away_for_the_other():
    """M8: the last call of one and the turn of another fell on one moment, and a third of five was away already: the
    second went by a look that still showed the first. Both agree on the order, so neither waits for the other."""

    def about_to_go(name, deadline):
        pod = Pod("shop", name, f"uid-{name}", "1", PodShape(), node="s1", ready=True)
        wanted = {"source": "spot", "way": EVICT, "reason": Reason.NOTICE, "detail": "", "wanted": NodeClass.UNKNOWN}
        op = move(pod, WEB, id_=name, deadline=deadline, takes_room=True, **wanted)
        mark = mark_for(op, pod, 0.0, EVICT)
        return msgspec.structs.replace(pod, annotations={LEAVING: write_mark(mark)}), mark

    def counts(one, other, now=0.0):
        return going_before(*other, Terms(workload=WEB, ready=2, marked=(one[0], other[0])), now) == 1

    soon, late, same = about_to_go("web-2", 100.0), about_to_go("web-1", 200.0), about_to_go("web-3", 200.0)
    assert [counts(soon, late), counts(late, soon), counts(soon, soon)] == [True, False, False]
    assert [counts(late, same), counts(same, late)] == [True, False]
    unready = (msgspec.structs.replace(soon[0], ready=False), soon[1])
    assert not counts(unready, late), "it is missing already"
    assert counts(same, late, now=199.0), "its last call has come: it goes now"
