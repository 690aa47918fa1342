"""Kubernetes Events: the same thing is not said twice, other words are, and a slow server never slows deciding."""

from mooring.core.model.kinds import Kind
from mooring.process.metrics import Metrics
from mooring.process.recorder import AGAIN_AFTER_S, BACKLOG, KubeRecorder


class Clock:
    at = 100.0

    def now(self):
        return 1_767_225_600.0 + self.at

    def monotonic(self):
        return self.at


class Randomness:
    def token(self, length):
        return "t" * length


def recorder(clock):
    return KubeRecorder(None, clock, Randomness(), Metrics(), identity="mooring-0")


def say(rec, message, reason="one-store", uid="u1"):
    rec.event(Kind.POD, "tidb", "demo-tikv-0", uid=uid, reason=reason, message=message, warning=True)


def test_same_words_once_in_a_quarter_of_an_hour():
    """uid and reason are the key, for 15 minutes, unless the words have changed."""
    clock = Clock()
    rec = recorder(clock)
    say(rec, "nowhere to go")
    say(rec, "nowhere to go")
    say(rec, "still nowhere to go")
    say(rec, "still nowhere to go", uid="u2")
    assert rec._queue.qsize() == 3
    clock.at += AGAIN_AFTER_S
    say(rec, "still nowhere to go")
    assert rec._queue.qsize() == 4


def test_an_event_as_kubectl_shows_it():
    """The reason in Kubernetes' own spelling, the object with its API version, a message that fits."""
    rec = recorder(Clock())
    say(rec, "x" * 2000)
    event = rec._queue.get_nowait()
    assert (event["type"], event["reason"], len(event["message"])) == ("Warning", "OneStore", 1024)
    assert event["involvedObject"]["apiVersion"] == "v1"
    assert event["metadata"]["namespace"] == "tidb"


def test_backlog_is_bounded():
    """What does not fit is dropped and counted, never waited for."""
    rec = recorder(Clock())
    for i in range(BACKLOG + 50):
        say(rec, "x", uid=f"u{i}")
    assert rec._queue.qsize() == BACKLOG
