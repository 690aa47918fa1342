"""`mooring maintain`: drain, command, Ready again, uncordon, the next (D7)."""

import asyncio

import pytest

from mooring.capabilities.drain.descriptor import report_of
from mooring.capabilities.drain.nodes import DRAIN, MAINTAIN, maintenance_of
from mooring.cli import app
from mooring.cli.maintain import Run, call_off, in_state, of_machines, run_command, run_id
from mooring.core.model.exits import Exit, UserError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.controllers import podstate
from tests.capabilities.drain.test_gate_scenarios import Least, deployed, gated, play, pods_of, serving
from tests.program import mooring

SELECTOR = "pool=old"


class Operator:
    """A person at a terminal, beside a running Mooring: the commands that ran, and on whom pods were then."""

    def __init__(self, rig, *nodes):
        self.rig, self.ran, self.there, self.exits = rig, [], [], {}
        self.reboots = True
        for name in nodes:
            self.change(name, lambda node: {**node, "metadata": {**node["metadata"], "labels": {"pool": "old"}}})
            self.boots(name, "boot-1")

    def change(self, name, how):
        self.rig.cluster.store.mutate(Kind.NODE, "", name, how)

    def boots(self, name, boot):
        def booted(node):
            info = {**node["status"].get("nodeInfo", {}), "bootID": boot}
            return {**node, "status": {**node["status"], "nodeInfo": info}}

        self.change(name, booted)

    def node(self, name):
        return self.rig.cluster.store.get(Kind.NODE, "", name)

    def said(self, name):
        return podstate.annotations_of(self.node(name))

    def cordoned(self, name):
        return bool(self.node(name)["spec"].get("unschedulable"))

    async def command(self, argv, beat):
        self.ran.append(argv)
        self.there += [p for p in pods_of(self.rig) if p["spec"]["nodeName"] == argv[1]]
        assert self.cordoned(argv[1])
        await self.rig.sleep(40.0)
        await beat()
        if self.reboots:
            self.boots(argv[1], f"boot-after-{len(self.ran)}")
        return self.exits.get(argv[1], 0)

    def chosen(self):
        found = self.rig.cluster.store.list(Kind.NODE)
        return [node for node in found if podstate.labels_of(node).get("pool") == "old"]

    def session(self, **how):
        async def rows():
            leader = self.rig.leader()
            return report_of(leader.engine, None)["nodes"] if leader else []

        how = {"within_s": 600.0, "now": self.rig.clock.now, **how}
        return Run(self.rig.api.as_client("ann"), rows, self.command, SELECTOR, ("firmware", "{node}"), **how)


def test_nodes_are_maintained_one_after_another():
    """D7: each is empty while its command runs, nothing is down, all take pods again, and no state is left."""

    async def scenario(rig):
        await gated(rig)
        await deployed(rig, annotations={})
        ann = Operator(rig, "n0", "n1", "n2")
        least = Least(rig, lambda: serving(rig))
        task = asyncio.ensure_future(ann.session().whole(ann.chosen(), 1))
        told = lambda name: {c["type"] for c in ann.node(name)["status"]["conditions"] if c["status"] == "True"}
        await least.watch(lambda: "MaintenancePlanned" in told("n1") and "MaintenanceInProgress" in told("n0"))
        await least.watch(task.done)
        assert task.result() == Exit.DONE
        assert ann.ran == [["firmware", "n0"], ["firmware", "n1"], ["firmware", "n2"]]
        assert not ann.there and least.seen == 1
        for name in ("n0", "n1", "n2"):
            assert not ann.cordoned(name) and not {DRAIN, MAINTAIN} & ann.said(name).keys()
        await rig.until(lambda: all(told(name) == {"Ready"} for name in ("n0", "n1", "n2")))

    play(scenario)


def test_it_stops_at_the_first_whose_command_fails_and_the_same_command_goes_on():
    """D7: that node stays cordoned, and the next is not touched; put right, the run ends, with no node done twice."""

    async def scenario(rig):
        await gated(rig)
        ann = Operator(rig, "n0", "n1", "n2")
        ann.exits["n1"] = 3
        assert await ann.session().whole(ann.chosen(), 1) == Exit.CHECK_FAILED
        assert ann.cordoned("n1") and not ann.cordoned("n2") and not ann.cordoned("n0")
        del ann.exits["n1"]
        assert await ann.session().whole(ann.chosen(), 1) == Exit.DONE
        assert [argv[1] for argv in ann.ran] == ["n0", "n1", "n1", "n2"]

    play(scenario)


def test_it_stops_at_the_first_that_does_not_return():
    """D7, F15: not Ready, or with --reboots without a new boot ID; its place is not given to the next."""

    async def scenario(rig):
        await gated(rig)
        ann = Operator(rig, "n0", "n1")
        ann.reboots = False
        assert await ann.session(reboots=True).whole(ann.chosen(), 1) == Exit.CHECK_FAILED
        assert ann.cordoned("n0") and ann.ran == [["firmware", "n0"]] and not ann.cordoned("n1")
        ann.reboots = True
        ann.boots("n0", "boot-later")
        assert await ann.session(reboots=True).whole(ann.chosen(), 1) == Exit.DONE

    play(scenario)


def test_after_ctrl_c_the_same_command_goes_on():
    """D7: interrupted while a command ran, it runs again; but not where the node has rebooted meanwhile."""
    for rebooted in (False, True):

        async def scenario(rig, rebooted=rebooted):
            await gated(rig)
            ann = Operator(rig, "n0", "n1")
            ann.reboots = False
            task = asyncio.ensure_future(ann.session().whole(ann.chosen(), 1))
            await rig.until(lambda: bool(ann.ran))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert maintenance_of(ann.said("n0")).step == "command" and ann.cordoned("n0")
            if rebooted:
                ann.boots("n0", "boot-2")
            assert await ann.session().whole(ann.chosen(), 1) == Exit.DONE
            assert [argv[1] for argv in ann.ran] == (["n0", "n1"] if rebooted else ["n0", "n0", "n1"])

        play(scenario)


def test_two_sessions_do_not_run_one_command_twice():
    """D7: the second is refused while the first lives (exit 3), and so is another command for the same nodes."""

    async def scenario(rig):
        await gated(rig)
        ann = Operator(rig, "n0", "n1")
        task = asyncio.ensure_future(ann.session().whole(ann.chosen(), 1))
        await rig.until(lambda: bool(ann.ran))
        with pytest.raises(UserError, match="elsewhere") as refused:
            await ann.session().whole(ann.chosen(), 1)
        assert refused.value.code is Exit.REFUSED
        other = Run(rig.api.as_client("ann"), None, None, SELECTOR, ("reboot",), now=rig.clock.now)
        with pytest.raises(UserError, match="another command"):
            await other.whole(ann.chosen(), 1)
        assert await task == Exit.DONE
        assert len(ann.ran) == 2

    play(scenario)


def test_nodes_are_chosen_by_the_state_of_their_machines():
    """F15: by what the registry says; who was begun stays part of the run when the command has healed its machine."""
    report = {"on": True, "registry": {"error": ""}, "machines": {"UNHEALTHY": ["n0", "n1"], "UPDATING": ["n2"]}}
    assert in_state(report, "Unhealthy") == {"n0", "n1"} and in_state(report, "retired") == frozenset()
    for wrong, state, code in (
        (report, "broken", Exit.USAGE),
        ({**report, "on": False}, "unhealthy", Exit.UNREACHABLE),
        ({**report, "registry": {"error": "timed out"}}, "unhealthy", Exit.UNREACHABLE),
    ):
        with pytest.raises(UserError) as refused:
            in_state(wrong, state)
        assert refused.value.code is code

    async def scenario(rig):
        await gated(rig)
        ann = Operator(rig, "n0", "n1")
        every = lambda: rig.cluster.store.list(Kind.NODE)
        run = run_id(SELECTOR, ("firmware", "{node}"))
        ann.exits["n1"] = 3
        chosen = of_machines(every(), in_state(report, "unhealthy"), run)
        assert await ann.session().whole(chosen, 1) == Exit.CHECK_FAILED
        del ann.exits["n1"]
        assert await ann.session().whole(of_machines(every(), frozenset(), run), 1) == Exit.DONE
        assert [argv[1] for argv in ann.ran] == ["n0", "n1", "n1"]
        with pytest.raises(UserError, match="no node's machine"):
            of_machines(every(), frozenset(), run)

    play(scenario)


def test_cancel_uncordons_what_it_cordoned_and_nothing_else():
    """D7: a drain that somebody had asked for before stays asked for."""

    async def scenario(rig):
        await gated(rig)
        ann = Operator(rig, "n0", "n1")
        rig.cluster.annotate(Kind.NODE, "", "n1", {DRAIN: ""})
        ann.exits["n0"] = 1
        assert await ann.session().whole(ann.chosen(), 2) == Exit.CHECK_FAILED
        await call_off(rig.api.as_client("ann"), ann.chosen())
        await rig.until(lambda: not ann.cordoned("n0"))
        await rig.sleep(30.0)
        assert ann.cordoned("n1") and DRAIN in ann.said("n1")
        assert not any(MAINTAIN in ann.said(name) for name in ("n0", "n1"))

    play(scenario)


def test_it_stops_when_a_person_uncordons_its_node():
    """D7: no command for a node that takes pods."""

    async def scenario(rig):
        await gated(rig)
        spec = {"nodeName": "n0", "containers": [{"name": "one", "image": "one"}]}
        rig.cluster.store.create(Kind.POD, {"metadata": {"namespace": "shop", "name": "bare"}, "spec": spec})
        ann = Operator(rig, "n0")
        task = asyncio.ensure_future(ann.session().whole(ann.chosen(), 1))
        await rig.until(lambda: ann.cordoned("n0"))
        rig.cluster.cordon("n0", on=False)
        assert await task == Exit.CHECK_FAILED
        assert not ann.ran

    play(scenario)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "behind --"),
        (("--cancel", "--", "true"), "behind --"),
        (("--at-most", "0", "--", "true"), "at-most"),
        (("--", "true"), "which nodes"),
        (("--state", "unhealthy", "--cancel"), "--cancel: by -l"),
        (("--", "no-such-command-anywhere"), "no such command"),
        (("--timeout", "soon", "--", "true", "-x"), "--timeout"),
    ],
)
def test_what_cannot_be_meant_is_exit_2(flags, words):
    """D7: with what would be right; nothing is asked of any cluster."""
    selector = () if "which nodes" in words else ("-l", SELECTOR)
    with pytest.raises(UserError, match=words) as refused:
        app(["maintain", *selector, *flags], exit_on_error=False, print_error=False)
    assert refused.value.code == Exit.USAGE


@pytest.mark.parametrize("selector", ["a b", "a=b c", "pool in a", "a=(b)"])
def test_a_selector_that_cannot_be_one_is_said_before_anybody_is_asked(selector):
    """D7: exit 2 and the selector, not that no cluster answers."""
    done = mooring("maintain", "-l", selector, "--server", "http://127.0.0.1:1", "--", "true")
    assert done.returncode == 2 and f"'{selector}' is not a label selector" in done.stderr


def test_a_command_ends_with_its_own_code():
    """D7."""

    async def whole():
        async def beat():
            pass

        return await run_command(["sh", "-c", "exit 7"], beat)

    assert asyncio.run(whole()) == 7
