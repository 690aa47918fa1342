"""What the doctor says about fleet: its settings, and a second generator."""

import json

import pytest

from mooring.capabilities.fleet.live import settings
from mooring.clients.ports import NotFoundError, UnansweredError
from mooring.install.doctor import Level
from mooring.install.doctor.fleet import generators

TEMPLATE = {
    "name": "prod",
    "service_subnet": "10.68.0.0/16",
    "nodes": [{"user": "x", "control_plane": True}, {"user": "x"}],
}


class Api:
    def __init__(self, answer):
        self.answer = answer

    async def get(self, kind, namespace, name):
        assert (str(kind), namespace, name) == ("ConfigMap", "own", "mooring-fleet")
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"data": self.answer}


def held(**more):
    return {settings.TEMPLATE: json.dumps(TEMPLATE), **more}


@pytest.mark.parametrize(
    ("answer", "on", "level", "code", "said"),
    [
        (held(), True, Level.OK, "", ""),
        (held(**{settings.CKE_INTEGRATION: "off"}), True, Level.OK, "", ""),
        (held(**{settings.CKE_INTEGRATION: "on"}), True, Level.ERROR, "MO901", "ckecli sabakan disable"),
        (held(**{settings.CKE_INTEGRATION: "on"}), False, Level.ERROR, "MO901", "cke-integration off"),
        ({settings.TEMPLATE: "nodes: []"}, True, Level.ERROR, "MO902", "exactly one"),
        (held(**{settings.ENABLED: "perhaps"}), True, Level.ERROR, "MO902", "enabled"),
        (NotFoundError("none"), True, Level.ERROR, "MO902", "set-template"),
        (NotFoundError("none"), False, Level.OK, "", ""),
        (UnansweredError("connection refused"), True, Level.SKIPPED, "", "connection refused"),
    ],
)
async def test_two_generators_and_bad_settings_are_found(answer, on, level, code, said):
    """F9: while CKE's own integration is on the doctor has a finding, with the command that ends it."""
    found = await generators(Api(answer), "own", on=on)
    assert (found.level, found.code) == (level, code)
    assert said in f"{found.seen} {found.fix}"
