"""What the doctor says about fleet: its settings, and a second generator."""

import json

import pytest

from mooring.capabilities.fleet.descriptor import generators
from mooring.capabilities.fleet.live import settings
from mooring.core.model.descriptor import Examined
from mooring.core.model.finding import Level
from mooring.process.settings.config import Config

TEMPLATE = {
    "name": "prod",
    "service_subnet": "10.68.0.0/16",
    "nodes": [{"user": "x", "control_plane": True}, {"user": "x"}],
}


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
        (None, True, Level.ERROR, "MO902", "set template"),
        (None, False, Level.OK, "", ""),
    ],
)
def test_two_generators_and_bad_settings_are_found(answer, on, level, code, said):
    """F9: while CKE's own integration is on the doctor has a finding, with the command that ends it."""
    (found,) = generators(Examined(config=Config(), on=on, settings=answer))
    assert (found.level, found.code) == (level, code)
    assert said in f"{found.seen} {found.fix}"
