"""Which taint a machine's state asks for, and which taints a control plane may carry."""

from collections.abc import Iterable
from typing import Final

from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.fleet.planner.current import StateTaint
from mooring.core.model.machine import MachineState

_RETIRING: Final = MachineState.RETIRING
_RETIRED: Final = MachineState.RETIRED


def wanted_state_taint(state: MachineState) -> StateTaint:
    """Retiring and retired only. Rebooting (UPDATING, UNINITIALIZED) and broken machines carry none."""
    if state == _RETIRING:
        return ("retiring", "NoExecute")
    if state == _RETIRED:
        return ("retired", "NoExecute")
    return None


def intolerable(taint_keys: Iterable[str], tolerated: frozenset[str]) -> str:
    """The first key a control plane must not carry; "" when all are tolerated.

    Kubernetes' own come and go (`node.kubernetes.io/…`), and Mooring sets its own: replacing a control plane because of
    them would never end.
    """
    for key in taint_keys:
        if key.startswith((keys.KUBERNETES_TAINT_PREFIX, keys.OUR_PREFIX)):
            continue
        if key in {keys.STATE_TAINT, keys.MASTER_TAINT} or key in tolerated:
            continue
        return key
    return ""
