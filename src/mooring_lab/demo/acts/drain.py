"""10:40: a person types `kubectl drain`, which knows nothing of leaders, nor of a Deployment with one replica.

The node has a TiKV member, the member of an etcd that leads, and `mail`: one replica under a budget that wants one
available, which no eviction may ever take by itself. kubectl evicts as it always does and tries again every 5 s; the
gate answers each try.
"""

import asyncio
import re
from typing import Final

from mooring.capabilities.drain.gate import IN_PROGRESS
from mooring.capabilities.drain.policy import REPLACE_FIRST
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LEADERS
from mooring_lab.cluster.controllers import manifests, podstate
from mooring_lab.demo.acts.pods import nothing_left
from mooring_lab.demo.stage import DEMO, TIDB, Check, DemoStage
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.drain import Drain
from mooring_lab.stage.scenarios.mix import NAMESPACE, left_behind, serving, slow_template

MAIL: Final = "mail"
ETCD: Final = "conf"
MEMBER: Final = f"{DEMO}-tikv-1"
#: From its node to Ready, of mail.
START_S: Final = 12.0


class KubectlDrain:
    at = "10:40"
    speed = 5.0
    title = "a person types kubectl drain"
    command = "kubectl drain … --ignore-daemonsets"

    def __init__(self) -> None:
        self._node = ""

    async def prepare(self, stage: DemoStage) -> None:
        """The gate is switched on, and mail runs beside a TiKV member: that node is drained."""
        rig = sandboxed(stage)
        stage.switch_on("drain")
        await rig.until(lambda: bool(rig.cluster.store.list(Kind.VALIDATING_WEBHOOK)))
        self._node = await beside_a_member(rig)
        self.command = f"kubectl drain {self._node} --ignore-daemonsets"

    async def play(self, stage: DemoStage) -> list[Check]:
        rig = sandboxed(stage)
        pd, workload = stage.cluster.pd[TIDB, DEMO], stage.cluster.workload(NAMESPACE, MAIL)
        interrupted, writes, began = len(pd.interruptions), len(rig.writes), rig.clock.monotonic()
        marks, etcd = left_behind(rig), rig.cluster.led[NAMESPACE, ETCD]
        drain = Drain(rig, self._node)
        leaving = drain.left()
        draining = asyncio.ensure_future(drain.run(limit_s=600.0))
        fewest, told = serving(rig, MAIL), set[str]()

        def done() -> bool:
            nonlocal fewest
            fewest = min(fewest, serving(rig, MAIL))
            for pod, words in drain.refusals:
                # What is being done for these two, as often as it is something else than before.
                _, found, said = words.partition("mooring: ")
                shape = re.sub(r"\d+", "", said)
                if pod.startswith((MAIL, MEMBER, ETCD)) and "(op " in said and shape not in told:
                    told.add(shape)
                    stage.say(f"429 {found}{said.removesuffix(f' ({IN_PROGRESS})')}")
            return draining.done()

        try:
            await rig.until(done)
            draining.result()
        finally:
            draining.cancel()
        took = rig.clock.monotonic() - began
        stage.say(f"{self._node} drained after {took:.0f} s: {len(leaving)} pods left it, kubectl took each of them")
        await rig.until(
            lambda: stage.ready(TIDB, f"{DEMO}-tikv") == 3 and left_behind(rig) == marks and not nothing_left(stage)
        )
        rig.cluster.cordon(self._node, on=False)
        cut_off = len(pd.interruptions) - interrupted
        ours = [write for write in rig.writes[writes:] if write.startswith(("evict Pod", "delete Pod"))]
        same = stage.cluster.workload(NAMESPACE, MAIL)["metadata"]["generation"] == workload["metadata"]["generation"]
        return [
            Check("D1", drain.done and bool(told), f"kubectl drain ended by itself after {took:.0f} s"),
            Check("D2", fewest >= 1, f"{MAIL}, minAvailable 1: never fewer than {fewest} of 1 Ready"),
            Check("E6", cut_off == 0, f"{cut_off} leaders were on a pod when it went"),
            Check(
                "L1", etcd.moves > 0 and not etcd.interruptions, f"{ETCD}-0 led an etcd; {etcd.leader} did when it went"
            ),
            Check("D1", not ours, f"the evictions were kubectl's own; Mooring deleted {len(ours)} pods"),
            Check("D2", same, "nothing of the Deployment was written"),
        ]


def sandboxed(stage: DemoStage) -> Rig:
    """The lab does not play this act."""
    assert isinstance(stage.rig, Rig), "kubectl drain is played on the sandbox"
    return stage.rig


async def beside_a_member(rig: Rig) -> str:
    """`mail` and its budget, and who leads an etcd, on the node of a TiKV member as long as that is open; its name."""
    node = podstate.node_of(rig.pod(TIDB, MEMBER) or {})
    wish = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    affinity: Json = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": wish}]}
    }
    template = slow_template(MAIL, START_S, affinity=affinity)
    made = manifests.deployment(NAMESPACE, MAIL, 1, template, annotations={REPLACE_FIRST: "true"})
    await rig.api.create(Kind.DEPLOYMENT, made)
    await rig.api.create(Kind.PDB, manifests.pdb(NAMESPACE, MAIL, {"app": MAIL}, min_available=1))
    apart: Json = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": ETCD}}}
    affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    etcd = manifests.stateful_set(
        NAMESPACE, ETCD, 3, manifests.pod_template({"app": ETCD}, affinity=affinity), annotations={LEADERS: "etcd"}
    )
    await rig.api.create(Kind.STATEFUL_SET, etcd)
    await rig.until(lambda: rig.cluster.ready(NAMESPACE, MAIL) == 1 and rig.cluster.ready(NAMESPACE, ETCD) == 3)
    (pod,) = rig.cluster.pods(NAMESPACE, MAIL)
    assert podstate.node_of(pod) == node, f"{MAIL} is on {podstate.node_of(pod)}, not on {node}"
    return node
