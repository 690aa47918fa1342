"""The informer, rule by rule, on an API server that plays a script."""

import gc

import pytest

from mooring.clients.kube.informer import WATCH_TIMEOUT_S
from mooring.clients.kube.informers import InformerSet, QuietCollector
from mooring.core.model.events import Gone, Listed, Seen
from mooring.core.model.kinds import Kind


def told(events):
    """Events in short: what a reader needs to see."""
    out = []
    for event in events:
        match event:
            case Listed():
                out.append(("listed", sorted(o.name for o in event.objects)))
            case Seen():
                out.append(("seen", event.object.name))
            case Gone():
                out.append(("gone", event.key.name, event.uid))
    return out


async def test_syncs_by_watch_list_and_follows_on_from_its_bookmark(script, follow, words):
    """WatchList comes first, ends at its bookmark, and the watch goes on from that resourceVersion."""
    script.stream(
        words.line("ADDED", words.pod("a", 5)), words.line("ADDED", words.pod("b", 7)), words.bookmark(9, end=True)
    )
    script.stream(words.line("MODIFIED", words.pod("a", 11)), words.line("DELETED", words.pod("b", 12)))
    informer, seen = await follow()
    assert told(seen) == [("listed", ["a", "b"]), ("seen", "a"), ("gone", "b", "uid-b")]
    first, second, third = script.queries()
    assert first["sendInitialEvents"] == "true"
    assert first["resourceVersionMatch"] == "NotOlderThan"
    assert first["allowWatchBookmarks"] == "true"
    assert "resourceVersion" not in first
    assert second["resourceVersion"] == "9"
    assert "sendInitialEvents" not in second
    assert third["resourceVersion"] == "12"
    assert informer.synced


async def test_the_stream_that_brought_the_list_is_followed_on(script, follow, words):
    """After the bookmark the same stream goes on: no second request, and no gap between list and watch."""
    script.stream(
        words.line("ADDED", words.pod("a", 5)),
        words.bookmark(9, end=True),
        words.line("MODIFIED", words.pod("a", 10)),
        words.line("ERROR", words.status(410, "Expired")),
    )
    script.stream(words.bookmark(20, end=True))
    _, seen = await follow()
    assert told(seen) == [("listed", ["a"]), ("seen", "a"), ("listed", [])]


@pytest.mark.parametrize("code", [400, 422])
async def test_an_older_server_is_listed_page_by_page_from_then_on(script, follow, words, code):
    """A server without WatchList costs one refused request: pages now, and at every later relist."""
    script.answer(code, words.status(code, "Invalid", "sendInitialEvents: Forbidden"))
    script.answer(200, words.pod_list(20, words.pod("a", 5), more="tok/en+=")).answer(
        200, words.pod_list(20, words.pod("b", 6))
    )
    script.answer(410, words.status(410, "Expired")).answer(200, words.pod_list(30, words.pod("a", 5)))
    _, seen = await follow()
    assert told(seen) == [("listed", ["a", "b"]), ("listed", ["a"])]
    queries = script.queries()
    assert queries[1]["limit"] == "500"
    assert queries[2]["continue"] == "tok/en+="
    assert queries[3]["resourceVersion"] == "20"
    assert "sendInitialEvents" not in queries[4]


async def test_410_as_status_is_a_relist_that_tells_of_deletes(script, follow, words):
    """Rule 1: a 410 status means relist; what was deleted meanwhile is missing in the new `Listed`."""
    script.stream(
        words.line("ADDED", words.pod("a", 5)), words.line("ADDED", words.pod("b", 6)), words.bookmark(9, end=True)
    )
    script.answer(410, words.status(410, "Expired", "too old resource version: 9 (40)"))
    script.stream(words.line("ADDED", words.pod("b", 6)), words.bookmark(50, end=True))
    informer, seen = await follow()
    assert told(seen) == [("listed", ["a", "b"]), ("listed", ["b"])]
    assert script.queries()[-1]["resourceVersion"] == "50"
    assert informer.stats.failures == 0


async def test_410_inside_the_stream_is_the_same(script, follow, words):
    """Rule 1: an ERROR event with code 410 means relist too, and what came before it counts."""
    script.stream(words.line("ADDED", words.pod("a", 5)), words.bookmark(9, end=True))
    script.stream(
        words.line("ADDED", words.pod("b", 10)),
        words.line("ERROR", words.status(410, "Expired", "too old resource version")),
    )
    script.stream(words.line("ADDED", words.pod("b", 10)), words.bookmark(50, end=True))
    _, seen = await follow()
    assert told(seen) == [("listed", ["a"]), ("seen", "b"), ("listed", ["b"])]


async def test_bookmarks_move_the_resource_version_on(script, follow, words):
    """Rules 2 and 3: a bookmark tells the sink nothing and moves the point of resumption."""
    script.stream(words.bookmark(9, end=True))
    script.stream(words.bookmark(77))
    _, seen = await follow()
    assert told(seen) == [("listed", [])]
    assert script.queries()[-1]["resourceVersion"] == "77"


async def test_a_cut_stream_is_taken_up_where_it_stopped(script, follow, words, clock):
    """A torn connection, even inside a line, costs neither a relist nor an event."""
    script.stream(words.bookmark(9, end=True))
    half = words.line("ADDED", words.pod("b", 11))
    script.stream(words.line("ADDED", words.pod("a", 10)), half[:100], words.cut)
    script.stream(half)
    informer, seen = await follow()
    assert told(seen) == [("listed", []), ("seen", "a"), ("seen", "b")]
    assert [q["resourceVersion"] for q in script.queries()[1:]] == ["9", "10", "11"]
    assert informer.stats.syncs == 1
    assert informer.stats.failures == 1


async def test_a_sync_that_breaks_off_tells_nothing(script, follow, words):
    """Half a list is no list: deletes are never made up. The other way of listing is tried next."""
    script.stream(words.line("ADDED", words.pod("a", 5)), words.cut)
    script.answer(200, words.pod_list(20, words.pod("a", 5), words.pod("b", 6)))
    _, seen = await follow()
    assert told(seen) == [("listed", ["a", "b"])]
    assert "sendInitialEvents" not in script.queries()[1]


async def test_a_stream_that_never_ends_its_initial_events_is_no_sync(script, follow, words):
    """A server that ignores `sendInitialEvents` (before 1.27) ends the stream without the bookmark: pages are next."""
    script.stream(words.line("ADDED", words.pod("a", 5)))
    script.answer(200, words.pod_list(20, words.pod("a", 5)))
    _, seen = await follow()
    assert told(seen) == [("listed", ["a"])]


async def test_what_is_deleted_during_the_initial_events_is_not_listed(script, follow, words):
    """Initial events and later ones may mix before the bookmark: the last word counts."""
    script.stream(
        words.line("ADDED", words.pod("a", 5)),
        words.line("ADDED", words.pod("b", 6)),
        words.line("DELETED", words.pod("a", 8)),
        words.bookmark(9, end=True),
    )
    _, seen = await follow()
    assert told(seen) == [("listed", ["b"])]


async def test_an_expired_page_token_starts_the_list_anew(script, follow, words):
    """A 410 in the middle of a paged list: nothing is told, and the list starts again with larger pages."""
    script.answer(422, words.status(422, "Invalid"))
    script.answer(200, words.pod_list(20, words.pod("gone-since", 5), more="t"))
    script.answer(410, words.status(410, "Expired", "The provided continue parameter is too old"))
    script.answer(200, words.pod_list(60, words.pod("b", 6)))
    _, seen = await follow()
    assert told(seen) == [("listed", ["b"])]
    assert script.queries()[3]["limit"] == "5000"
    assert "continue" not in script.queries()[3]


async def test_429_waits_as_long_as_the_server_wishes(script, follow, words, clock):
    """Rule 4: Retry-After is honoured, never undercut, and says nothing against the resourceVersion."""
    script.stream(words.bookmark(9, end=True))
    for _ in range(4):
        script.answer(429, words.status(429, "TooManyRequests"), Retry_After="7")
    informer, _ = await follow()
    assert len(clock.slept) == 4
    assert all(s >= 7 for s in clock.slept)
    assert informer.stats.throttled == 4
    assert informer.stats.failures == 0
    assert {q["resourceVersion"] for q in script.queries()[1:]} == {"9"}


async def test_waits_grow_and_are_bounded(script, follow, words, clock):
    """Rule 4: an API server that is not there is asked less and less often, at least every 15 s, and resumed, not relisted."""
    script.stream(words.bookmark(9, end=True))
    for _ in range(9):
        script.answer(503, b"upstream connect error")
    informer, _ = await follow()
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[0] <= 0.5
    assert 7.5 <= clock.slept[-1] <= 15
    assert {q["resourceVersion"] for q in script.queries()[1:]} == {"9"}
    assert informer.stats.last_error.startswith("watch Pod: 503 upstream connect error")


async def test_garbage_ends_a_stream_and_three_of_them_a_resource_version(script, follow, words):
    """A line that is no event is never skipped over: resume, and after three in vain list again."""
    script.stream(words.bookmark(9, end=True))
    for _ in range(3):
        script.stream(b"<html>bad gateway</html>\n")
    script.stream(words.line("ADDED", words.pod("a", 5)), words.bookmark(30, end=True))
    _, seen = await follow()
    assert told(seen) == [("listed", []), ("listed", ["a"])]


async def test_an_error_event_other_than_410_is_no_relist(script, follow, words):
    """A 500 inside the stream: the stream is taken up again from where it was."""
    script.stream(words.bookmark(9, end=True))
    script.stream(words.line("ERROR", words.status(500, "InternalError", "etcdserver: no leader")))
    script.stream(words.line("ADDED", words.pod("a", 10)))
    informer, seen = await follow()
    assert told(seen) == [("listed", []), ("seen", "a")]
    assert informer.stats.syncs == 1


async def test_streams_that_end_at_once_do_not_turn_in_a_circle(script, follow, words, clock):
    """A server that closes every stream at once is not asked in a tight loop."""
    script.stream(words.bookmark(9, end=True))
    for _ in range(5):
        script.stream()
    await follow()
    assert len(clock.slept) == 5
    assert clock.slept[-1] > 3


async def test_relists_in_a_row_are_spread(script, follow, words, clock):
    """A server that answers 410 to every watch is not relisted in a tight loop."""
    for _ in range(4):
        script.stream(words.bookmark(9, end=True)).answer(410, words.status(410, "Expired"))
    await follow()
    assert len(clock.slept) == 4
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[-1] > 2


async def test_the_time_limit_of_a_watch_is_drawn_between_290_and_590_s(script, follow, words):
    """Rule 4: `timeoutSeconds` is random within its bounds (the dice of this test show the middle)."""
    assert WATCH_TIMEOUT_S == (290.0, 590.0)
    script.stream(words.bookmark(9, end=True))
    await follow()
    assert {q["timeoutSeconds"] for q in script.queries()} == {"440"}


async def test_a_kind_the_server_does_not_know_is_an_empty_one(script, follow, words, clock):
    """No TidbCluster CRD: synced and empty at once, looked for again every half minute, found when it appears."""
    for _ in range(3):
        script.answer(404, b"404 page not found\n")
    script.answer(422, words.status(422, "Invalid"))
    meta = {"namespace": "tidb", "name": "demo", "uid": "u", "resourceVersion": "5"}
    script.answer(200, {"metadata": {"resourceVersion": "20"}, "items": [{"metadata": meta}]})
    _, seen = await follow(Kind.TIDB_CLUSTER)
    assert told(seen) == [("listed", []), ("listed", ["demo"])]
    assert clock.slept == [30.0, 30.0, 30.0]


@pytest.mark.parametrize(("looks", "believed"), [(2, False), (3, True)])
async def test_a_kind_that_vanishes_is_believed_at_the_third_look(script, follow, words, looks, believed):
    """A 404 or two of a server that is still starting do not wipe the world; the third does."""
    script.stream(words.line("ADDED", words.pod("a", 5)), words.bookmark(9, end=True))
    script.answer(404, words.status(404, "NotFound"))
    for _ in range(looks):
        script.answer(404, words.status(404, "NotFound"))
    _, seen = await follow(Kind.TIDB_CLUSTER)
    assert told(seen) == [("listed", ["a"])] + ([("listed", [])] if believed else [])


@pytest.mark.parametrize("kind", [Kind.POD, Kind.NODE, Kind.PDB])
async def test_a_built_in_kind_never_vanishes(script, follow, words, kind):
    """Every API server has pods: 404 is a road that leads elsewhere, and must not empty the world, however often."""
    script.stream(words.line("ADDED", words.pod("a", 5)), words.bookmark(9, end=True))
    for _ in range(8):
        script.answer(404, b"404 page not found\n")
    script.stream(words.line("ADDED", words.pod("b", 15)))
    informer, seen = await follow(kind)
    assert told(seen) == [("listed", ["a"]), ("seen", "b")], "and the stream is taken up where it was"
    assert informer.stats.failures >= 8


async def test_a_built_in_kind_that_is_not_there_is_not_synced(script, follow, words):
    """A load balancer's 404 before the first sync is no empty cluster: not ready, and it says why."""
    for _ in range(4):
        script.answer(404, b"404 page not found\n")
    informer, seen = await follow(Kind.POD)
    assert seen == []
    assert not informer.synced
    assert "404" in informer.stats.last_error


@pytest.mark.parametrize("odd", [{}, None, 5, "pod", {"metadata": None}, {"metadata": {"name": "x"}}])
@pytest.mark.parametrize("kind", [Kind.POD, Kind.TIDB_CLUSTER])
async def test_what_has_no_uid_came_from_no_api_server(script, follow, words, odd, kind):
    """One nameless object in a stream or a list ends neither us nor what is known: it is asked for again."""
    script.stream(words.line("ADDED", words.pod("a", 5)), words.bookmark(9, end=True))
    script.stream(words.line("MODIFIED", odd))
    script.stream(words.line("MODIFIED", words.pod("a", 11)), words.line("ERROR", words.status(410, "Expired")))
    script.answer(422, words.status(422, "Invalid"))
    script.answer(200, {"metadata": {"resourceVersion": "20"}, "items": [words.pod("a", 12), odd]})
    script.answer(200, words.pod_list(30, words.pod("a", 12)))
    _, seen = await follow(kind)
    assert told(seen) == [("listed", ["a"]), ("seen", "a"), ("listed", ["a"])]


async def test_not_ready_before_the_first_sync(script, follow, words, clock):
    """Readiness only after sync: while the list is refused, the informer says so and why."""
    for _ in range(3):
        script.answer(403, words.status(403, "Forbidden", 'pods is forbidden: User "x" cannot list resource "pods"'))
    informer, seen = await follow()
    several = InformerSet([informer])
    assert seen == []
    assert not several.synced
    assert several.missing == ('Pod: watch Pod: 403 pods is forbidden: User "x" cannot list resource "pods"',)


async def test_a_page_that_is_no_list_does_not_empty_the_world(script, follow, words):
    """`{}` from a proxy is no answer, least of all "there are no pods"."""
    script.answer(422, words.status(422, "Invalid")).answer(200, b"{}").answer(200, b"<html>").answer(
        200, words.pod_list(20, words.pod("a", 5))
    )
    _, seen = await follow()
    assert told(seen) == [("listed", ["a"])]


async def test_the_collector_is_quiet_during_a_sync_and_freezes_what_stays(script, follow, words):
    """Rule 5: off while syncing, then collected, frozen and on again; also after a sync that failed."""
    during = []

    class Watching(QuietCollector):
        def __enter__(self):
            super().__enter__()
            during.append(gc.isenabled())

    before = gc.get_freeze_count()
    script.answer(503).answer(200, words.pod_list(20, words.pod("a", 5)))
    try:
        await follow(around_sync=Watching())
        assert during == [False, False]
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()


def test_overlapping_syncs_switch_the_collector_once():
    """Two informers sync at the same time: the collector is on again when the last one is done, not before."""
    quiet = QuietCollector()
    try:
        quiet.__enter__()
        quiet.__enter__()
        quiet.__exit__(None, None, None)
        assert not gc.isenabled()
        quiet.__exit__(None, None, None)
        assert gc.isenabled()
    finally:
        gc.unfreeze()


async def test_an_event_the_sink_chokes_on_is_not_passed_over(script, api, clock, words):
    """A bug in the sink surfaces; it is not taken for a fault of the API."""
    from mooring.clients.kube.informer import Informer

    class Middle:
        def uniform(self, low, high):
            return low

    script.stream(words.bookmark(9, end=True))

    def choke(event):
        raise KeyError("bug")

    with pytest.raises(KeyError):
        await Informer(api, Kind.POD, choke, clock, Middle()).run()
