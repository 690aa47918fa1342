"""The acts of the demo's day, one module each, in the order of the day. An act that exists is played."""

from mooring.rehearse.acts.mode_change import ModeChange
from mooring.rehearse.acts.notice import Notice
from mooring.rehearse.acts.restart import Restart
from mooring.rehearse.acts.retire import Retire
from mooring.rehearse.acts.rolling_update import RollingUpdate
from mooring.rehearse.acts.scale_out import ScaleOut
from mooring.rehearse.acts.two_restarts import TwoRestarts
from mooring.rehearse.stage import Act

#: By the clock of the day.
ACTS: tuple[type[Act], ...] = (RollingUpdate, ModeChange, Notice, Restart, Retire, ScaleOut, TwoRestarts)
