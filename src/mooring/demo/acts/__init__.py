"""The acts of the demo's day, one module each, in the order of the day. All of them are played."""

from mooring.demo.acts.mode_change import ModeChange
from mooring.demo.acts.notice import NoticeAct
from mooring.demo.acts.restart import Restart
from mooring.demo.acts.retire import Retire
from mooring.demo.acts.rolling_update import RollingUpdateAct
from mooring.demo.acts.scale_out import ScaleOut
from mooring.demo.acts.two_restarts import TwoRestarts
from mooring.demo.stage import DemoAct

#: By the clock of the day.
ACTS: tuple[type[DemoAct], ...] = (RollingUpdateAct, ModeChange, NoticeAct, Restart, Retire, ScaleOut, TwoRestarts)
