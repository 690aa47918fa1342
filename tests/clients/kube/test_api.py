"""The HTTP client: what is sent, what the answers mean, and how long it waits."""

import asyncio

import pytest

import mooring
from mooring.clients.kube.api import HttpKubeApi, Scope
from mooring.clients.kube.config import Connection, User
from mooring.clients.kube.stream import BrokenStreamError
from mooring.clients.ports import (
    AlreadyExistsError,
    ConflictError,
    EvictionBlockedError,
    ExpiredError,
    NotFoundError,
    PatchType,
    RefusedError,
    ThrottledError,
    UnansweredError,
)
from mooring.core.model.kinds import Kind

PDB = {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods"}]}
UID = {"causes": [{"reason": "FieldValueInvalid", "message": "Invalid value", "field": "metadata.uid"}]}
DOES_NOT_APPLY = "the server rejected our request due to an error in our request"


@pytest.mark.parametrize(
    ("code", "reason", "message", "details", "error"),
    [
        (400, "BadRequest", "no", {}, RefusedError),
        (401, "Unauthorized", "Unauthorized", {}, RefusedError),
        (403, "Forbidden", "no", {}, RefusedError),
        (404, "NotFound", "no", {}, NotFoundError),
        (409, "AlreadyExists", "no", {}, AlreadyExistsError),
        (409, "Conflict", "the object has been modified", {}, ConflictError),
        (410, "Expired", "no", {}, ExpiredError),
        (410, "Gone", "no", {}, ExpiredError),
        (413, "RequestEntityTooLarge", "no", {}, RefusedError),
        (422, "Invalid", "spec.replicas: Invalid value: -1", {}, RefusedError),
        (422, "Invalid", DOES_NOT_APPLY, {}, ConflictError),
        (422, "Invalid", 'Pod "p" is invalid: metadata.uid', UID, ConflictError),
        (429, "TooManyRequests", "Too many requests", {}, ThrottledError),
        (429, "TooManyRequests", "Cannot evict pod", PDB, EvictionBlockedError),
        (500, "InternalError", "etcdserver: request timed out", {}, UnansweredError),
        (500, "InternalError", "This pod has more than one PodDisruptionBudget, which …", {}, EvictionBlockedError),
        (503, "ServiceUnavailable", "no", {}, UnansweredError),
        (504, "Timeout", "no", {}, UnansweredError),
    ],
)
async def test_each_status_has_one_meaning(script, api, words, code, reason, message, details, error):
    """Did my request change anything? `UnansweredError`: look. Every other leaf: no. The words name what was asked."""
    for _ in range(2):  # a 401 is asked twice
        script.answer(code, words.status(code, reason, message, **details))
    with pytest.raises(error) as raised:
        await api.evict("default", "web-1")
    assert type(raised.value) is error
    assert str(raised.value).startswith(f"evict Pod default/web-1: {code} {message}")
    if error is RefusedError:
        assert raised.value.code == code


async def test_retry_after_comes_from_the_header_or_the_status(script, api, words):
    """The server's wish is passed on, from wherever it says it."""
    script.answer(429, words.status(429, "TooManyRequests"), Retry_After="11")
    script.answer(429, words.status(429, "TooManyRequests", retryAfterSeconds=12))
    script.answer(503, words.status(503, "ServiceUnavailable", retryAfterSeconds=13))
    script.answer(429, b"slow down", Retry_After="Wed, 21 Oct 2026 07:28:00 GMT")
    wishes = []
    for _ in range(4):
        with pytest.raises((ThrottledError, UnansweredError)) as raised:
            await api.get(Kind.NODE, "", "n1")
        wishes.append(raised.value.retry_after_s)
    assert wishes == [11.0, 12.0, 13.0, 1.0]


@pytest.mark.parametrize(("said", "wish"), [("86400", 60.0), ("9" * 400, 60.0), ("²", 1.0), ("-5", 1.0), ("1.5", 1.0)])
async def test_a_wish_to_wait_is_bounded(script, api, words, said, wish):
    """A maintenance page that asks for a day must not blind us for one; what is no number is no wish."""
    script.answer(429, words.status(429, "TooManyRequests"), Retry_After=said)
    with pytest.raises(ThrottledError) as raised:
        await api.get(Kind.NODE, "", "n1")
    assert raised.value.retry_after_s == wish


@pytest.mark.parametrize("body", [b"<html>Bad Gateway</html>", b"", b"\xff\xfe", b'{"kind":"Pod"}', b"null", b"[]"])
async def test_an_answer_that_is_no_status_still_has_words(script, api, body):
    """A proxy's page in place of a Status becomes part of the sentence, never a traceback."""
    script.answer(403, body)
    with pytest.raises(RefusedError, match=r"^get Node n1: 403 \S"):
        await api.get(Kind.NODE, "", "n1")


async def test_a_lost_connection_is_unanswered(script, api, words):
    """The server went away before or in the middle of its answer: nobody knows, so look."""
    script.stream(words.cut).stream(b'{"metadata":', words.cut)
    for _ in range(2):
        with pytest.raises(UnansweredError):
            await api.create(Kind.POD, words.pod("a", 1))


@pytest.mark.parametrize("verb", ["PUT", "DELETE", "POST"])
async def test_nothing_is_sent_twice(script, api, words, verb):
    """A kept connection drops in the middle of a write: nobody sends it again behind our back, since it may have counted."""
    script.answer(200, {}).drop().answer(409, words.status(409, "Conflict"))
    await api.get(Kind.POD, "default", "a")
    deeds = {
        "PUT": lambda: api.replace(Kind.POD, words.pod("a", 1)),
        "DELETE": lambda: api.delete(Kind.POD, "default", "a", uid="u"),
        "POST": lambda: api.evict("default", "a"),
    }
    with pytest.raises(UnansweredError, match="closed the connection without an answer"):
        await deeds[verb]()
    assert [method for method, *_ in script.requests] == ["GET", verb]


async def test_a_server_that_is_not_there_is_named():
    """Nothing listens: the sentence names the address and the reason."""
    async with HttpKubeApi(Connection(server="http://127.0.0.1:1")) as api:
        with pytest.raises(UnansweredError, match=r"http://127.0.0.1:1: not reachable: Connection refused"):
            await api.list(Kind.POD)


async def test_a_write_ends_in_time_whatever_the_server_does(script, words):
    """A leader's write must have ended before anyone else may lead: the client gives up, and the server is told when to."""
    script.hang()
    async with HttpKubeApi(Connection(server=script.url), write_timeout_s=0.1) as api:
        async with asyncio.timeout(5):
            with pytest.raises(UnansweredError, match="no answer"):
                await api.evict("default", "web-1")
    assert script.queries()[0]["timeout"] == "100ms"


def test_a_write_takes_less_than_lease_minus_renew_deadline():
    """One-queue's fencing rule, as numbers."""
    from mooring.clients.kube.api import WRITE_TIMEOUT_S
    from mooring.process.lease.election import Timing
    from mooring.process.settings.config import WRITE_S

    assert Timing().lease_s - Timing().renew_deadline_s > WRITE_TIMEOUT_S
    assert WRITE_S == WRITE_TIMEOUT_S, "what settings are checked against"


async def test_writes_say_who_we_are_and_what_must_hold(script, api, words):
    """Field manager, preconditions, grace, dry run and kinds are sent as the API takes them."""
    for _ in range(9):
        script.answer(200, {"kind": "Status", "status": "Success"})
    await api.create(Kind.LEASE, {"metadata": {"namespace": "a", "name": "l"}, "spec": {}}, dry_run=True)
    await api.replace(Kind.POD, words.pod("a", 7), subresource="status")
    await api.patch(Kind.NODE, "", "n1", [{"op": "test"}], patch_type=PatchType.JSON)
    await api.patch(Kind.NODE, "", "n1", {"spec": {}}, patch_type=PatchType.APPLY)
    await api.delete(Kind.POD, "a", "p", uid="u", resource_version="3", grace_s=0)
    await api.delete(Kind.POD, "a", "p")
    await api.evict("a", "p", uid="u", grace_s=20)
    await api.bind("a", "p", "n1", uid="u")
    create, replace, json_patch, apply, delete, plain, evict, bind = script.requests
    assert create[:2] == ("POST", "/apis/coordination.k8s.io/v1/namespaces/a/leases")
    assert create[2] == {"fieldManager": "mooring", "dryRun": "All", "timeout": "2500ms"}
    assert create[3]["kind"] == "Lease"
    assert create[3]["apiVersion"] == "coordination.k8s.io/v1"
    assert replace[:2] == ("PUT", "/api/v1/namespaces/default/pods/a/status")
    assert replace[3]["metadata"]["resourceVersion"] == "7"
    assert json_patch[:2] == ("PATCH", "/api/v1/nodes/n1")
    assert apply[2]["force"] == "true"
    assert delete[3]["preconditions"] == {"uid": "u", "resourceVersion": "3"}
    assert delete[3]["gracePeriodSeconds"] == 0
    assert "preconditions" not in plain[3]
    assert "gracePeriodSeconds" not in plain[3]
    assert evict[1] == "/api/v1/namespaces/a/pods/p/eviction"
    assert evict[3]["deleteOptions"]["preconditions"] == {"uid": "u"}
    assert evict[3]["deleteOptions"]["gracePeriodSeconds"] == 20
    assert bind[1] == "/api/v1/namespaces/a/pods/p/binding"
    assert bind[3]["target"]["name"] == "n1"
    assert bind[3]["metadata"]["uid"] == "u"
    kinds = [h["Content-Type"] for h in script.headers]
    assert kinds[2:4] == ["application/json-patch+json", "application/apply-patch+yaml"]
    assert {h["User-Agent"] for h in script.headers} == {f"mooring/{mooring.__version__}"}


async def test_a_scope_narrows_lists_and_watches(script, words):
    """Only our own ConfigMaps are asked for, not every one in the cluster."""
    script.answer(200, {"metadata": {"resourceVersion": "1"}, "items": []}).stream(words.bookmark(2))
    scope = Scope(namespace="mooring", label_selector="app=mooring", field_selector="metadata.name=x")
    async with HttpKubeApi(Connection(server=script.url), scopes={Kind.CONFIG_MAP: scope}) as api:
        await api.list(Kind.CONFIG_MAP)
        assert [e.type async for e in api.watch(Kind.CONFIG_MAP)] == ["BOOKMARK"]
    for _, path, query, _ in script.requests:
        assert path == "/api/v1/namespaces/mooring/configmaps"
        assert query["labelSelector"] == "app=mooring"
        assert query["fieldSelector"] == "metadata.name=x"


async def test_an_event_of_a_megabyte_and_a_half_passes(script, api, words):
    """The largest object etcd takes fits into a line."""
    big = words.pod("big", 5)
    big["metadata"]["annotations"] = {"a": "x" * 1_600_000}
    script.stream(words.line("ADDED", big), words.line("ADDED", words.pod("small", 6)))
    assert [e.object.name async for e in api.watch(Kind.POD)] == ["big", "small"]


DEEP = b'{"type":"ADDED","object":{"metadata":{"name":"a"},"else":' + b"[" * 20_000 + b"]" * 20_000 + b"}}\n"


async def test_an_object_that_nests_as_deep_as_the_api_server_allows(script, api, words):
    """One odd object must not cost the others: a TidbCluster's free-form fields may nest 10,000 deep."""
    deep = b'{"metadata":{"name":"a","uid":"u","resourceVersion":"5"},"else":' + b"[" * 9_000 + b"]" * 9_000 + b"}"
    script.stream(b'{"type":"ADDED","object":' + deep + b"}\n", words.line("ADDED", words.pod("b", 6)))
    assert [e.object.name async for e in api.watch(Kind.TIDB_CLUSTER)] == ["a", "b"]
    script.answer(200, b'{"metadata":{"resourceVersion":"5"},"items":[' + deep + b"]}")
    assert [o.name for o in (await api.list(Kind.TIDB_CLUSTER)).items] == ["a"]


@pytest.mark.parametrize(
    "garbage", [b"\n", b"null\n", b'{"type":"ADDED"}\n', b'{"type":"NEW","object":{}}\n', b"\xff\n", DEEP]
)
async def test_garbage_in_a_stream_is_said_to_be_garbage(script, api, words, garbage):
    """A line that is no event ends the stream with one sentence; what came before it counts."""
    script.stream(words.line("ADDED", words.pod("a", 5)), garbage, words.line("ADDED", words.pod("b", 6)))
    seen = []
    with pytest.raises(BrokenStreamError, match=r"^watch Pod: "):
        async for event in api.watch(Kind.POD):
            seen.append(event.object.name)
    assert seen == ["a"]


async def test_a_stalled_sync_is_given_up(script, words, monkeypatch):
    """The server owes us initial events and falls silent: no longer than half a minute (here: 50 ms)."""
    monkeypatch.setattr("mooring.clients.kube.api.INITIAL_STALL_S", 0.05)
    script.stream(words.line("ADDED", words.pod("a", 5)), words.hang)
    async with HttpKubeApi(Connection(server=script.url)) as api:
        with pytest.raises(UnansweredError):
            async for _ in api.watch(Kind.POD, initial_events=True):
                pass


async def test_a_silent_watch_is_given_up_after_its_time_limit_and_a_grace(script, words, monkeypatch):
    """`sock_read` is the stream's own limit and a grace: a server that forgot to end it does not hold us."""
    monkeypatch.setattr("mooring.clients.kube.api.WATCH_GRACE_S", 0.05)
    script.stream(words.line("ADDED", words.pod("a", 5)), words.hang)
    async with HttpKubeApi(Connection(server=script.url)) as api:
        with pytest.raises(UnansweredError):
            async for _ in api.watch(Kind.POD, timeout_s=0):
                pass


async def test_raw_answers_values_or_text(script, api):
    """Rare calls: /version is JSON, /readyz is a word."""
    script.answer(200, {"gitVersion": "v1.36.3"}).answer(200, b"ok")
    assert await api.raw("GET", "/version") == {"gitVersion": "v1.36.3"}
    assert await api.raw("GET", "/readyz") == "ok"


async def test_a_redirect_is_not_followed(script, api):
    """A log-in page is no API server, and our token is not for others."""
    script.answer(302, b"", Location="http://127.0.0.1:1/login")
    with pytest.raises(RefusedError, match="is this the API server's address"):
        await api.list(Kind.POD)


async def test_impersonation_is_passed_on(script):
    """`as` in the kubeconfig narrows what we may do; dropping it would act with more rights than asked for."""
    user = User(token="t", impersonate="jane", impersonate_groups=("a", "b"))
    script.answer(200, b"ok")
    async with HttpKubeApi(Connection(server=script.url, user=user)) as api:
        await api.raw("GET", "/readyz")
    assert script.headers[0]["Impersonate-User"] == "jane"
    assert script.headers[0]["Authorization"] == "Bearer t"
