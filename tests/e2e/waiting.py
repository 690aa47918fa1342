"""Waiting on a real control plane: as long as something moves, and not by a fixed time, which is wrong on a busy machine.

The limit starts again whenever what is shown has changed: the lab's pods and nodes, and what the caller tells. While
things go fast nobody is asked. A wait that fails shows the last state: pods with phase, node and conditions, nodes,
events, and what the caller tells.
"""

import asyncio
import contextlib
import inspect
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mooring.clients.ports import PortError
from mooring_lab.control.cluster import Lab
from mooring_lab.control.errors import LabError

#: Seconds without any change, in all, and between two looks.
LIMIT_S: Final = 180.0
CAP_S: Final = 900.0
LOOK_S: Final = 45.0
#: The lab of this test process, when it has one: there is one at a time.
_labs: list[Lab] = []


def show(*labs: Lab) -> None:
    """From now on a wait follows this lab."""
    _labs[:] = labs


def until(holds: Callable[[], Any], what: str = "", *, every_s: float = 0.2, **how: Any) -> Any:
    """What `holds` answers, as soon as that is true. `tell`: more of the state, in words; `limit_s`: instead of three minutes."""
    patience = Patience(what, **how)
    while not (answer := holds()):
        patience.look()
        time.sleep(every_s)
    return answer


async def eventually(holds: Callable[[], Any], what: str = "", *, every_s: float = 0.15, **how: Any) -> Any:
    """The same where the loop goes on meanwhile; `holds` may be awaited."""
    patience = Patience(what, **how)
    while True:
        with contextlib.suppress(PortError):  # a server that does not answer just now says nothing
            answer = holds()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return answer
        if patience.due():
            await asyncio.to_thread(patience.look)
        await asyncio.sleep(every_s)


def stands(lab: Lab, *words: str) -> None:
    """`kubectl wait …` or `rollout status …`, for as long as something moves."""
    said = []

    def holds() -> bool:
        try:
            lab.kubectl(*words, "--timeout=10s")
        except LabError as error:
            said[:] = [str(error)]
            return False
        return True

    until(holds, " ".join(words), tell=lambda: said)


def clear(lab: Lab) -> None:
    """No workload and no pod."""
    with lab.api() as api:
        api.empty(*(one["metadata"]["name"] for one in api.ask("GET", "api/v1/namespaces")["items"]))


def starved_s(*pids: int | None) -> float:
    """Seconds in which these processes could have run and no processor was free: the most of any thread of each, added up.

    Linux counts them; elsewhere it is 0. One that has ended counts as long as nobody has waited for it."""
    return sum(max(map(_waited_s, Path(f"/proc/{pid}/task").glob("*/schedstat")), default=0.0) for pid in pids if pid)


def _waited_s(schedstat: Path) -> float:
    with contextlib.suppress(OSError):  # the thread has ended
        return int(schedstat.read_text().split()[1]) / 1e9
    return 0.0


class Stopwatch:
    """What something took, without what a busy machine kept its processes waiting for a processor."""

    def __init__(self, *pids: int | None) -> None:
        self._pids, self._starved_s = pids, starved_s(*pids)
        self._began = time.monotonic()

    def took_s(self) -> float:
        return time.monotonic() - self._began - (starved_s(*self._pids) - self._starved_s)


class Patience:
    def __init__(
        self,
        what: str,
        *,
        limit_s: float = LIMIT_S,
        tell: Callable[[], Any] = str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what, self._limit_s, self._tell, self._now = what, limit_s, tell, now
        self._began = self._looked = self._changed = now()
        self._seen: object = None
        self._nudged = False

    def due(self) -> bool:
        return self._now() - self._looked >= LOOK_S

    def look(self) -> None:
        """Fails when nothing has changed for longer than the limit, or when it all takes too long."""
        if not self.due():
            return
        self._looked = self._now()
        if not self._nudged:
            self._nudged = True
            nudge()
        seen = (cluster(), self._tell())
        if seen != self._seen:
            self._seen, self._changed = seen, self._looked
        still_s, in_all_s = self._looked - self._changed, self._looked - self._began
        if still_s >= self._limit_s or in_all_s >= CAP_S:
            how = f"did not come to hold in {in_all_s:.0f} s, the last {still_s:.0f} s without any change"
            raise AssertionError(f"{self._what or 'it'} {how}\n{cluster()}\n{events()}\n{self._tell()}")


def nudge() -> None:
    """Change pods that do not get on, in an annotation: kwok, the lab's kubelet, now and then misses one until it changes."""
    for lab in _labs:
        with contextlib.suppress(LabError):
            for pod in json.loads(lab.kubectl("get", "pods", "-A", "-o", "json"))["items"]:
                meta, status = pod["metadata"], pod["status"]
                ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ()))
                ended = status["phase"] in {"Succeeded", "Failed"}
                if pod["spec"].get("nodeName") and ("deletionTimestamp" in meta or not (ready or ended)):
                    where = ("-n", meta["namespace"], f"pod/{meta['name']}")
                    lab.kubectl("annotate", "--overwrite", *where, f"lab.mooring.dev/looked-at={time.time():.0f}")


def cluster() -> str:
    """The lab's nodes and pods, a line each; no times, so that what stands still reads the same."""
    lines = []
    for lab in _labs:
        try:
            found = json.loads(lab.kubectl("get", "nodes,pods", "-A", "-o", "json"))["items"]
        except LabError as error:
            return str(error)
        lines += [_pod(one) if one["kind"] == "Pod" else _node(one) for one in found]
    return "\n".join(sorted(lines))


def events() -> str:
    """The last thirty events of all namespaces but the lab's own."""
    try:
        told = [lab.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp").splitlines()[-30:] for lab in _labs]
    except LabError as error:
        return str(error)
    return "\n".join(line for lines in told for line in lines)


def _pod(pod: dict[str, Any]) -> str:
    meta, status = pod["metadata"], pod["status"]
    true = [c["type"] for c in status.get("conditions", ()) if c["status"] == "True"]
    false = [f"not {c['type']} ({c.get('reason', '')})" for c in status.get("conditions", ()) if c["status"] != "True"]
    ends = ["on its way out"] if "deletionTimestamp" in meta else []
    where = pod["spec"].get("nodeName", "no node")
    words = [f"pod {meta['namespace']}/{meta['name']}", meta["resourceVersion"], status["phase"], where, *ends]
    return " ".join([*words, *true, *false])


def _node(node: dict[str, Any]) -> str:
    ready = [c["status"] for c in node["status"].get("conditions", ()) if c["type"] == "Ready"]
    taints = [f"{t['key']}={t.get('value', '')}:{t['effect']}" for t in node["spec"].get("taints", ())]
    labels = [f"{key}={value}" for key, value in sorted(node["metadata"].get("labels", {}).items())]
    cordoned = ["cordoned"] if node["spec"].get("unschedulable") else []
    return " ".join([f"node {node['metadata']['name']} Ready:", *ready, *cordoned, *taints, *labels])
