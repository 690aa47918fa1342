"""M13: the agent fails visibly: doctor names the nodes that it is silent on."""

import json

import pytest

from mooring.clients.ports import NotFoundError
from mooring.core.model.cluster import Node
from mooring.core.model.finding import Level
from mooring.core.model.marks import AGENT
from mooring.core.model.times import rfc3339
from mooring.install.doctor.running import agents

NOW = 1_800_000_000.0


class Api:
    """Answers for the DaemonSet; None: it is not installed."""

    def __init__(self, selector: dict[str, str] | None) -> None:
        self.selector = selector

    async def get(self, kind, namespace, name):
        assert (namespace, name) == ("mooring-system-agent", "mooring-agent")
        if self.selector is None:
            raise NotFoundError("no")
        return {"spec": {"template": {"spec": {"nodeSelector": self.selector}}}}


def node(name, ago_s=None, text=None, created_s=1e6, ready="True", **more):
    said = text if text is not None else json.dumps({"checked": rfc3339(NOW - (ago_s or 0.0)), **more})
    notes = {} if ago_s is None and text is None else {AGENT: said}
    return Node(name, f"uid-{name}", "1", annotations=notes, created_at=NOW - created_s, ready=ready)


async def found(nodes, selector=None):
    return await agents(Api(selector), "mooring-system", nodes, NOW)


async def test_without_an_agent_nothing_is_said():
    assert await found([node("n1")]) == []


async def test_agents_that_look_are_well():
    (one,) = await found([node("n1", 60.0), node("n2", 3700.0)], {})
    assert one.level is Level.OK and "2 nodes" in one.what


@pytest.mark.parametrize(
    "silent", [node("n2"), node("n2", 4 * 3600.0), node("n2", text="[" * 5000), node("n2", text="{}")]
)
async def test_a_node_without_its_word_is_named(silent):
    (one,) = await found([node("n1", 60.0), silent], {})
    assert (one.code, one.level) == ("MO307", Level.WARNING) and "1 of its nodes: n2" in one.seen


async def test_new_nodes_nodes_that_are_not_ready_and_nodes_of_other_pools_are_not_waited_for():
    nodes = [node("n1", 60.0), node("n2", created_s=60.0), node("n3", ready="Unknown")]
    assert [one.level for one in await found(nodes, {})] == [Level.OK]
    assert [one.level for one in await found([node("n1", 60.0), node("n2")], {"pool": "spot"})] == [Level.OK]


async def test_one_that_was_uninstalled_and_left_its_annotation_is_named_with_what_takes_it_away():
    (one,) = await found([node("n1", 1e5)])
    assert one.code == "MO307" and "mooring cleanup" in one.fix


async def test_what_it_cannot_read_and_what_requires_a_reboot_are_said():
    nodes = [node("n1", 60.0, problem="spot: no answer"), node("n2", 60.0, notices={"reboot-required": {}})]
    bad, reboot = await found(nodes, {})
    assert bad.code == "MO307" and "n1: spot: no answer" in bad.seen
    assert reboot.level is Level.OK and "n2" in reboot.what
