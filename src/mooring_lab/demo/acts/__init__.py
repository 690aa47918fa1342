"""The acts of the demo's day, in its order. All of them are played on the sandbox."""

from mooring_lab.demo.acts.drain import KubectlDrain
from mooring_lab.demo.acts.pods import ModeChange, NoticeAct, Restart, RollingUpdateAct
from mooring_lab.demo.acts.stores import Retire, ScaleOut, TwoRestarts
from mooring_lab.demo.stage import DemoAct

#: By the clock of the day.
ACTS: tuple[type[DemoAct], ...] = (
    RollingUpdateAct,
    ModeChange,
    NoticeAct,
    Restart,
    Retire,
    ScaleOut,
    TwoRestarts,
    KubectlDrain,
)
#: Those that are played on the lab too.
LAB_ACTS: tuple[type[DemoAct], ...] = ACTS[:-1]
