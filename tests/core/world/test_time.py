import pytest

from mooring.core.model.cluster import Key
from mooring.core.model.events import Gone, Listed, Seen
from mooring.core.model.kinds import Kind
from mooring.core.world.table import Table, older


@pytest.mark.parametrize(
    ("version", "than", "expected"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("10", "10", False),
        ("a", "10", False),
        ("10", "b", False),
        ("", "1", False),
    ],
)
def test_versions_compare_as_numbers(version, than, expected):
    """Only what is known to come before counts as older; what is not a number is never called old."""
    assert older(version, than) is expected


def test_late_events_change_nothing(world, rows):
    """A replayed older version of a pod does not turn back time."""
    before, after = rows.pod("p"), rows.pod("p", node="n1")
    assert len(world.apply(Seen(Kind.POD, after))) == 1
    assert world.apply(Seen(Kind.POD, before)) == []
    assert world.apply(Seen(Kind.POD, after)) == []
    assert world.pod(Key("a", "p")) is after


def test_changes_carry_old_and_new(world, rows):
    """Each change says what was and what is, so that deciders are woken for what matters."""
    first, second = rows.pod("p"), rows.pod("p", node="n1")
    (born,) = world.apply(Seen(Kind.POD, first))
    (changed,) = world.apply(Seen(Kind.POD, second))
    (died,) = world.apply(Gone(Kind.POD, Key("a", "p"), "p-uid"))
    assert [(c.old, c.new) for c in (born, changed, died)] == [(None, first), (first, second), (second, None)]


def test_a_version_that_shows_nothing_new_is_kept_and_is_no_news(world, rows):
    """A kubelet's note on a container wakes nobody; the row has the version that the next write needs, and a look
    that something else causes sees it."""
    first, noted, moved = rows.pod("p", cpu=5), rows.pod("p", cpu=5), rows.pod("p", cpu=5, node="n1")
    world.apply(Seen(Kind.POD, first))
    assert world.apply(Seen(Kind.POD, noted)) == []
    assert world.pod(Key("a", "p")) is noted
    assert world.pod(Key("a", "p")).resource_version == "102" != first.resource_version
    assert world.apply(Seen(Kind.POD, first)) == [], "the note moved time on all the same"
    (change,) = world.apply(Seen(Kind.POD, moved))
    assert (change.old, change.new) == (noted, moved)
    assert world.check() == []


def test_the_dead_stay_dead(world, rows):
    """A late event about a pod that was seen to go does not bring it back; its namesake may come."""
    pod = rows.pod("p", "u1")
    world.apply(Seen(Kind.POD, pod))
    world.apply(Gone(Kind.POD, pod.key, "u1"))
    assert world.apply(Seen(Kind.POD, rows.pod("p", "u1"))) == []
    assert len(world.apply(Seen(Kind.POD, rows.pod("p", "u2")))) == 1
    assert world.check() == []


def test_an_end_that_overtakes_the_beginning(world, rows):
    """When a pod's end is seen before its beginning, the beginning is old news."""
    world.apply(Gone(Kind.POD, Key("a", "p"), "u1"))
    assert world.apply(Seen(Kind.POD, rows.pod("p", "u1"))) == []


def test_the_end_of_another_is_not_its_own(world, rows):
    """A delete that names a predecessor's uid leaves the namesake alone, however late it comes."""
    pod = rows.pod("p", "u2")
    world.apply(Seen(Kind.POD, pod))
    assert world.apply(Gone(Kind.POD, pod.key, "u1")) == []
    assert world.pod(pod.key) == pod
    assert len(world.apply(Gone(Kind.POD, pod.key, "u2"))) == 1
    assert world.apply(Gone(Kind.POD, pod.key, "u2")) == []


def test_a_namesake_replaces(world, rows):
    """Deleted and created again while nobody looked: the old one is reported gone, then the new one new."""
    first, second = rows.pod("p", "u1", node="n1"), rows.pod("p", "u2", node="n2")
    world.apply(Seen(Kind.POD, first))
    changes = world.apply(Seen(Kind.POD, second))
    assert [(c.old, c.new) for c in changes] == [(first, None), (None, second)]
    assert world.pods_on("n1") == ()
    assert world.apply(Seen(Kind.POD, rows.pod("p", "u1"))) == []
    assert world.check() == []


def test_a_list_is_the_whole_truth(world, rows):
    """A list takes away what it lacks, keeps what is known, and overrules even newer versions (a restored etcd)."""
    old, kept, gone = rows.pod("changed"), rows.pod("kept"), rows.pod("gone")
    newer = rows.pod("changed", node="n1")
    for pod in (newer, kept, gone):
        world.apply(Seen(Kind.POD, pod))
    same = type(kept)(kept.namespace, kept.name, kept.uid, kept.resource_version, kept.shape)
    changes = world.apply(Listed(Kind.POD, (old, same)))
    assert [(c.old, c.new) for c in changes] == [(gone, None), (newer, old)]
    assert world.pod(kept.key) is kept
    assert world.check() == []


def test_a_list_may_be_behind(world, rows):
    """What a stale list left out comes back with the next event: a list buries nobody."""
    pod = rows.pod("p")
    world.apply(Seen(Kind.POD, pod))
    world.apply(Listed(Kind.POD, ()))
    assert len(world.apply(Seen(Kind.POD, pod))) == 1


def test_a_list_revives(world, rows):
    """What a list contains exists, whatever was believed before."""
    pod = rows.pod("p")
    world.apply(Gone(Kind.POD, pod.key, pod.uid))
    assert len(world.apply(Listed(Kind.POD, (pod,)))) == 1


def test_a_list_in_parts(world, rows):
    """A large list can be taken in parts, and the world is consistent at every pause."""
    world.apply(Listed(Kind.POD, tuple(rows.pod(f"old-{n}", node="n1") for n in range(5))))
    parts = []
    for part in world.relist(Listed(Kind.POD, tuple(rows.pod(f"new-{n}", node="n2") for n in range(5))), step=2):
        parts.append(len(part))
        assert world.check() == []
    assert [size for size in parts if size] == [2, 2, 1, 2, 2, 1]
    assert len(world.pods_on("n2")) == 5


def test_what_is_known_is_not_held_twice(world, rows):
    """Gathering a list, the row that the world has already stands in for an equal copy; a changed one does not."""
    pod = rows.pod("p")
    world.apply(Seen(Kind.POD, pod))
    copy = type(pod)(pod.namespace, pod.name, pod.uid, pod.resource_version, pod.shape)
    assert world.known(Kind.POD, copy) is pod
    changed = rows.pod("p")
    assert world.known(Kind.POD, changed) is changed


def test_strings_are_kept_once(world, rows):
    """After any number of changes, a row's name and uid are the very strings that the indexes hold."""
    for n in range(3):
        # Made anew each time: equal, but not the same strings.
        world.apply(Seen(Kind.POD, rows.pod(f"p-{n // 9}", f"u-{n // 9}", node="n1")))
    (pod,) = world.pods()
    (uid,) = world._pod_indexes.by_node["n1"]
    assert pod.uid is uid
    assert pod.name is next(iter(world._rows.pods._names["a"]))


def test_an_object_without_uid_is_a_mistake(world, rows):
    """Whatever has no uid did not come from an API server and is refused aloud."""
    pod = rows.pod("p")
    with pytest.raises(AssertionError, match="a/p has no uid"):
        world.apply(Seen(Kind.POD, type(pod)("a", "p", "", "1", pod.shape)))


def test_the_memory_of_the_dead_is_bounded():
    """A table remembers some thousands of the gone, however many there were."""
    table = Table()
    for number in range(20_000):
        table.bury(str(number))
    assert len(table._gone) + len(table._gone_before) <= 2 * 4096
    assert "19999" in table._gone
