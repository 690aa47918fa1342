"""M13: something brings the notice. What the agent makes of each cloud's answers, bad ones included."""

import json
import os

import pytest

from mooring.agent.clouds import Aws as AwsReader
from mooring.agent.clouds import Metadata, MetadataError, SilentError
from mooring.agent.watch import HEARTBEAT_S, PROBLEM_S, Agent, ApiError, Settings, settings_of
from tests.agent.services import HTML, MISSING, Aws, Azure, Google, ServedNode, azure_event, served

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
TERMINATE = (200, {}, '{"action": "terminate", "time": "2027-01-15T08:02:00Z"}')
PROVIDERS = {Aws: "aws:///eu-central-1a/i-0abc", Google: "gce://p/z/vm", Azure: "azure:///subscriptions/x/vmss/0"}


class Played:
    """An agent beside one metadata service, on a clock of the test's own."""

    def __init__(self, metadata: Metadata, service: object, node: ServedNode | None = None, reboot: str = "none"):
        self.now = NOW
        self.node = node or ServedNode(PROVIDERS[type(service)])
        file = "" if reboot == "none" else reboot
        self.agent = Agent(Settings("n1", reboot_file=file), self.node, metadata, lambda: self.now)

    def turn(self, after_s: float = 5.0) -> str:
        self.now += after_s
        return self.agent.turn()


def play(service, **how):
    """The annotation's notices after one turn, and whatever else is asked of it."""
    with served(service) as metadata:
        played = Played(metadata, service, **how)
        played.turn(0.0)
        return played.node.notices


# ── What each cloud says ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("service", [Aws, Google, Azure])
def test_without_a_notice_there_is_none_and_the_node_says_that_the_agent_is_there(service):
    with served(made := service()) as metadata:
        played = Played(metadata, made)
        played.turn(0.0)
        assert played.node.read == {
            "cloud": service.__name__.lower(),
            "checked": "2027-01-15T08:00:00Z",
            "notices": {},
        }


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_aws_spot_actions_interrupt_at_the_time_that_they_name(action):
    aws = Aws()
    aws.spot = (200, {}, json.dumps({"action": action, "time": "2027-01-15T08:02:00Z"}))
    assert play(aws) == {"spot": {"kind": "interrupt", "what": f"AWS spot {action}", "at": "2027-01-15T08:02:00Z"}}


def test_an_aws_rebalance_recommendation_only_prepares():
    aws = Aws()
    aws.rebalance = (200, {}, '{"noticeTime": "2027-01-15T07:58:00Z"}')
    words = {"kind": "prepare", "what": "AWS rebalance recommendation", "at": "2027-01-15T07:58:00Z"}
    assert play(aws) == {"rebalance": words}


def test_aws_is_asked_with_a_token_that_is_renewed_when_it_ends():
    aws = Aws()
    with served(aws) as metadata:
        played = Played(metadata, aws)
        played.turn(0.0)
        played.turn()
        assert aws.tokens == 1
        aws.valid = "another, after a restart of the service"
        aws.spot = TERMINATE
        played.turn()
        assert aws.tokens == 2 and "spot" in played.node.notices


def test_a_google_preemption_is_30_s_from_when_it_was_first_seen_also_for_the_next_agent():
    google = Google()
    google.preempted = "TRUE"
    with served(google) as metadata:
        first = Played(metadata, google)
        first.turn(0.0)
        first.turn(10.0)
        again = Played(metadata, google, ServedNode(PROVIDERS[Google], first.node.annotation))
        again.turn(15.0)
    for node in (first.node, again.node):
        assert node.notices == {
            "preempted": {"kind": "interrupt", "what": "Google preemption", "at": "2027-01-15T08:00:30Z"}
        }


@pytest.mark.parametrize(
    ("word", "kind"),
    [("NONE", None), ("MIGRATE_ON_HOST_MAINTENANCE", None), ("TERMINATE_ON_HOST_MAINTENANCE", "empty")],
)
def test_google_maintenance_empties_the_node_unless_the_machine_lives_on(word, kind):
    google = Google()
    google.maintenance = word
    assert [one["kind"] for one in play(google).values()] == ([kind] if kind else [])


@pytest.mark.parametrize("kind", ["Preempt", "Terminate", "Redeploy", "Reboot"])
def test_azure_events_that_stop_this_machine_interrupt_at_their_time(kind):
    azure = Azure()
    azure.events = [
        azure_event(EventType=kind, NotBefore="Fri, 15 Jan 2027 08:15:00 GMT"),
        azure_event(EventType=kind, Resources=["AKS-SPOT-12345-VMSS_0"]),
    ]
    words = {"kind": "interrupt", "what": f"Azure {kind}", "at": "2027-01-15T08:00:30Z"}
    assert play(azure) == {"scheduled-events": words}


@pytest.mark.parametrize(
    "other",
    [
        {"Resources": ["aks-spot-12345-vmss_1"]},
        {"Resources": "aks-spot-12345-vmss_0"},
        {"EventType": "Freeze"},
        {"EventStatus": "Completed"},
        {"EventStatus": "Canceled"},
    ],
)
def test_azure_events_of_other_machines_and_pauses_are_none_of_ours(other):
    azure = Azure()
    azure.events = [azure_event(**other), "garbage", None]
    assert play(azure) == {}


def test_an_azure_event_that_has_begun_has_no_time_any_more_and_counts_from_when_it_was_seen():
    azure = Azure()
    azure.events = [azure_event(EventStatus="Started", NotBefore="")]
    assert play(azure)["scheduled-events"]["at"] == "2027-01-15T08:00:00Z"


def test_a_required_reboot_is_told_and_nothing_more(tmp_path):
    with served(aws := Aws()) as metadata:
        played = Played(metadata, aws, reboot=str(tmp_path / "reboot-required"))
        played.turn(0.0)
        assert played.node.notices == {}
        (tmp_path / "reboot-required").touch()
        played.turn()
        assert played.node.notices["reboot-required"]["kind"] == "tell"


# ── Bad answers ───────────────────────────────────────────────────────────────────────────────────────────────────────

ELSEWHERE = (302, {"Location": "/latest/api/other"}, "")
BAD = {
    "silence": None,
    "a proxy's page": HTML,
    "a redirect": ELSEWHERE,
    "an error": (500, {}, "Internal Server Error"),
    "an empty answer": (200, {}, ""),
    "no object": (200, {}, '["terminate"]'),
    "no time": (200, {}, '{"action": "terminate"}'),
    "a time that is none": (200, {}, '{"action": "terminate", "time": "in two minutes"}'),
    "a time long past": (200, {}, '{"action": "terminate", "time": "1970-01-01T00:00:00Z"}'),
    "a time far ahead": (200, {}, '{"action": "terminate", "time": "2099-01-01T00:00:00Z"}'),
    "an unknown action": (200, {}, '{"action": "explode", "time": "2027-01-15T08:02:00Z"}'),
    "deep": (200, {}, "[" * 100_000),
    "a word in no alphabet": (200, {}, "\x00\x7f☃" * 50),
}


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD)
def test_a_bad_answer_neither_brings_a_notice_nor_takes_one_back_and_is_said_after_three_minutes(answer):
    """First do no harm: what cannot be read changes nothing, and the Node says what came."""
    for known in (MISSING, TERMINATE):
        aws = Aws()
        aws.spot = known
        with served(aws) as metadata:
            played = Played(metadata, aws)
            played.turn(0.0)
            before = played.node.notices
            aws.spot = answer
            played.turn()
            played.turn(PROBLEM_S - 10.0)
            assert played.node.notices == before and "problem" not in played.node.read
            played.turn(10.0)
            assert played.node.notices == before and played.node.read["problem"].startswith("spot: ")
            assert len(played.node.annotation) <= 1024
            aws.spot = MISSING
            played.turn()
            assert played.node.notices == {} and "problem" not in played.node.read


@pytest.mark.parametrize("answer", [None, HTML, ELSEWHERE, MISSING, (200, {}, ""), (200, {}, "x" * 5000)], ids=str)
def test_without_a_token_aws_is_not_asked(answer):
    asked = []

    def service(method, path, headers):
        asked.append((method, path))
        return answer

    with served(service) as metadata, pytest.raises(MetadataError):
        AwsReader(metadata).sources["spot"](NOW, None)
    assert set(asked) == {("PUT", "/latest/api/token")}


@pytest.mark.parametrize(
    "answer", [None, HTML, MISSING, (200, {}, "TRUE"), (200, {"Metadata-Flavor": "Google"}, "YES")], ids=str
)
def test_an_answer_that_is_not_googles_preempts_nothing(answer):
    node = ServedNode(PROVIDERS[Google])
    with served(lambda *_: answer) as metadata:
        played = Played(metadata, Google(), node)
        played.turn(0.0)
        played.turn(PROBLEM_S)
    assert node.notices == {} and "problem" in node.read


@pytest.mark.parametrize(
    "answer", [HTML, MISSING, (200, {}, "{}"), (200, {}, '{"Events": {}}'), (200, {}, "[]"), (410, {}, "{}")], ids=str
)
def test_a_document_that_is_not_azures_takes_no_event_back(answer):
    azure = Azure()
    azure.events = [azure_event()]
    with served(azure) as metadata:
        played = Played(metadata, azure)
        played.turn(0.0)
        azure.body = answer
        played.turn(PROBLEM_S)
        played.turn(PROBLEM_S)
        assert "scheduled-events" in played.node.notices and "problem" in played.node.read


def test_a_service_that_does_not_answer_in_time_is_silent():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as quiet, pytest.raises(SilentError):
        Metadata("127.0.0.1", quiet.getsockname()[1], timeout_s=0.2).ask("/", {})


def test_no_proxy_is_asked_for_a_link_local_address(monkeypatch):
    """What a proxy answers is not about this machine."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    aws = Aws()
    aws.spot = TERMINATE
    assert "spot" in play(aws)


# ── What is written ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_what_is_new_is_written_and_once_an_hour_that_it_still_looks():
    aws = Aws()
    with served(aws) as metadata:
        played = Played(metadata, aws)
        played.turn(0.0)
        for _ in range(20):
            assert played.turn() == ""
        assert len(played.node.patches) == 2  # the first changes nothing
        played.turn(HEARTBEAT_S + 600.0)
        assert len(played.node.patches) == 3 and played.node.read["checked"] > "2027-01-15T09"


def test_an_api_server_that_refuses_is_said_once_and_asked_again_later_and_later():
    """Fails quiet and visible: no write storm from 2,000 nodes, and the notice comes through in the end."""
    aws = Aws()
    aws.spot = TERMINATE
    node = ServedNode()
    node.error = ApiError("the API server answered 403: no")
    with served(aws) as metadata:
        played = Played(metadata, aws, node)
        said = [played.turn() for _ in range(120)]
        assert [line for line in said if line] == ["the API server answered 403: no"]
        assert len(node.patches) < 20
        node.error = None
        played.turn(60.0)
        assert "spot" in node.notices


@pytest.mark.parametrize(
    "text", ["", "{}", "yes", "[]", '{"notices": {"spot": 1}}', '{"notices": {"spot": {"kind": "interrupt"}}}']
)
def test_whatever_stands_on_the_node_the_agent_begins(text):
    aws = Aws()
    with served(aws) as metadata:
        played = Played(metadata, aws, ServedNode(annotation=text))
        played.turn(0.0)
        assert played.node.notices == {}


def test_an_interruption_that_is_long_over_is_not_taken_over_from_an_earlier_agent():
    """A machine that came back under the name of its Node, where nothing answers: its last life is over."""
    old = {"preempted": {"kind": "interrupt", "what": "Google preemption", "at": "2027-01-15T06:00:00Z"}}
    node = ServedNode(PROVIDERS[Google], json.dumps({"notices": old}))
    with served(lambda *_: None) as metadata:
        played = Played(metadata, Google(), node)
        played.turn(0.0)
    assert node.notices == {}


def test_elsewhere_nobody_is_asked():
    """No metadata service of a cloud: only the sentinel is looked at."""

    def service(*_):
        raise AssertionError("asked")

    node = ServedNode(provider="")
    with served(service) as metadata:
        Played(metadata, Aws(), node).turn(0.0)
    assert node.read["cloud"] == "none"


@pytest.mark.parametrize(
    "wrong", [{}, {"MOORING_AGENT_CLOUD": "oci"}, {"MOORING_AGENT_EVERY_S": "0"}, {"MOORING_AGENT_EVERY_S": "nan"}]
)
def test_a_setting_that_cannot_be_is_refused_by_name(wrong):
    node = {"MOORING_AGENT_NODE": "n1"} if wrong else {}
    with pytest.raises(ValueError, match="|".join(wrong) or "MOORING_AGENT_NODE"):
        settings_of({**node, **wrong})
    assert settings_of({"MOORING_AGENT_NODE": "n1"}) == Settings("n1")
    assert os.path.isabs(Settings("n1").reboot_file)
