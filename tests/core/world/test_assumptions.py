from mooring.core.model.cluster import Key
from mooring.core.model.events import Gone, Listed, Seen
from mooring.core.model.kinds import Kind
from mooring.core.world.assumptions import Assumed
from mooring.core.world.read import Usage


def test_a_deletion_is_assumed_until_seen(world, rows, see):
    """Between our delete and its echo the pod counts as leaving; then it simply is."""
    pod = rows.pod("p", node="n1")
    see(Kind.POD, pod)
    world.assume_leaving(pod.uid, expires_at=10.0)
    assert world.is_leaving(pod)
    see(Kind.POD, rows.pod("p", node="n1", ready=True))
    assert world.is_leaving(world.pod_by_uid(pod.uid))
    see(Kind.POD, rows.pod("p", node="n1", deletion_at=5.0))
    assert world.assumptions() == ()
    assert world.is_leaving(world.pod_by_uid(pod.uid))


def test_a_pod_that_is_gone_confirms(world, rows, see):
    """A pod that is gone at once, or missing in a list, confirms too."""
    for event in (Gone(Kind.POD, Key("a", "p"), "u"), Listed(Kind.POD, ())):
        world.apply(Listed(Kind.POD, (rows.pod("p", "u"),)))
        world.assume_leaving("u", expires_at=10.0)
        world.apply(event)
        assert world.assumptions() == ()


def test_a_placement_takes_its_room_at_once(world, rows, see):
    """An assumed place counts as taken, so that two pods are not promised the same room; observation wins."""
    pod = rows.pod("p", cpu=500)
    see(Kind.POD, pod)
    world.assume_placed(pod.uid, "n1", expires_at=10.0)
    assert (world.node_of(pod), world.usage("n1")) == ("n1", Usage(500, 0, 1))
    bound = rows.pod("p", cpu=500, node="n2")
    see(Kind.POD, bound)
    assert (world.node_of(bound), world.usage("n1"), world.usage("n2")) == ("n2", Usage(), Usage(500, 0, 1))
    assert world.assumptions() == ()


def test_refused_is_forgotten(world, rows, see):
    """A request that was refused leaves nothing behind; of two assumptions one can be forgotten alone."""
    pod = rows.pod("p", cpu=5)
    see(Kind.POD, pod)
    world.assume_leaving(pod.uid, expires_at=10.0)
    world.assume_placed(pod.uid, "n1", expires_at=10.0)
    assert [a.what for a in world.forget(pod.uid, Assumed.LEAVING)] == [Assumed.LEAVING]
    assert not world.is_leaving(pod)
    assert world.usage("n1").pods == 1
    world.forget(pod.uid)
    assert (world.assumptions(), world.usage("n1"), world.forget(pod.uid)) == ((), Usage(), [])


def test_what_is_never_seen_expires(world, rows, see):
    """An assumption ends at its time at the latest, and is reported so that somebody looks again."""
    see(Kind.POD, rows.pod("p"), rows.pod("q"))
    world.assume_leaving("p-uid", expires_at=10.0)
    world.assume_leaving("q-uid", expires_at=20.0)
    assert (world.next_expiry(), world.expire(9.9)) == (10.0, [])
    assert [a.pod_uid for a in world.expire(10.0)] == ["p-uid"]
    assert world.next_expiry() == 20.0
    world.expire(99.0)
    assert world.next_expiry() is None


def test_assuming_again_moves_the_expiry(world, rows, see):
    """The newer assumption counts: a new node, a new expiry, no room held twice."""
    see(Kind.POD, rows.pod("p", cpu=5))
    world.assume_placed("p-uid", "n1", expires_at=10.0)
    world.assume_placed("p-uid", "n2", expires_at=30.0)
    assert (world.usage("n1"), world.usage("n2").pods, world.expire(10.0)) == (Usage(), 1, [])


def test_an_echo_that_came_first(world, rows, see):
    """What the watch has shown already is not assumed any more: nothing would confirm it a second time."""
    see(Kind.POD, rows.pod("p", deletion_at=3.0))
    world.assume_leaving("p-uid", expires_at=10.0)
    assert world.assumptions() == ()


def test_a_pod_that_is_not_seen_yet(world, rows):
    """Assumptions about a pod that the world does not know wait for it, and hold no room until its size is known."""
    world.assume_placed("p-uid", "n1", expires_at=10.0)
    assert world.usage("n1") == Usage()
    world.apply(Seen(Kind.POD, rows.pod("p", cpu=7)))
    assert world.usage("n1") == Usage(7, 0, 1)
