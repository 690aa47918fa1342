"""Mooring's own page beside a rehearsal: the queue, the stores, the nodes and the timeline while they move."""

import socket

from mooring.process.http.served import ServedPage
from mooring.process.http.status import status_app
from mooring.sim.rig import Rig


class RehearsalPage(ServedPage):
    def __init__(self, rig: Rig, listener: socket.socket) -> None:
        super().__init__(lambda: status_app(lambda: rig.leader() or rig.any(), cluster="rehearsal"), listener)
