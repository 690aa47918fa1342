"""`mooring pause` and `mooring resume` (D8)."""

import json

import pytest

from mooring.cli.pause import pause, resume, seconds
from mooring.clients.ports import NotFoundError
from mooring.core.engine.holds import PAUSE_MAP, read_pauses
from mooring.core.model.cluster import ConfigMap
from mooring.core.model.exits import UserError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.cluster import Cluster


@pytest.fixture
def cluster(monkeypatch):
    """The sandbox's API server behind the command's connection."""
    from contextlib import asynccontextmanager

    made = Cluster(seed=1)
    made.store.create(Kind.NAMESPACE, {"metadata": {"name": "mooring-system"}})

    @asynccontextmanager
    async def connect(*_):
        yield made.api.as_client("person")

    monkeypatch.setattr("mooring.cli.pause.connect", connect)
    return made


def paused(cluster):
    try:
        found = cluster.store.get(Kind.CONFIG_MAP, "mooring-system", PAUSE_MAP)
    except NotFoundError:
        return {}
    return read_pauses(ConfigMap("mooring-system", PAUSE_MAP, "u", "1", data=found.get("data") or {}))


def test_a_pause_says_who_and_until_when(cluster, capsys):
    """D8: written where the engine reads it, and told with the way back."""
    pause(("mix", "balance"), for_="2h", why="release week")
    found = paused(cluster)
    assert set(found) == {"mix", "balance"}
    assert found["mix"].why == "release week" and found["mix"].ends_at is not None and not found["mix"].deadlines
    assert "mooring resume mix balance" in capsys.readouterr().err


def test_everything_is_paused_and_resumed(cluster):
    """D8: without a name everything; --all stops deadlines, too; resume ends all of them, or one."""
    pause((), all_=True)
    pause(("fleet",))
    assert paused(cluster)["everything"].deadlines
    resume(("fleet",))
    assert set(paused(cluster)) == {"everything"}
    resume(())
    assert paused(cluster) == {}


def test_resuming_where_nothing_is_paused_is_done(cluster):
    """D8: no ConfigMap is made for it."""
    resume(())
    assert not cluster.store.list(Kind.CONFIG_MAP, "mooring-system")


@pytest.mark.parametrize("text", ["", "2", "0h", "-1h", "1w", "2 h"])
def test_a_time_that_is_none_is_refused(text):
    """D8: by its flag."""
    with pytest.raises(UserError, match="--for"):
        seconds(text, "--for")


def test_an_unknown_feature_is_refused(cluster):
    """D8: with those that there are."""
    with pytest.raises(UserError, match="drain"):
        pause(("mixx",))
    assert json.dumps(sorted(paused(cluster))) == "[]"
