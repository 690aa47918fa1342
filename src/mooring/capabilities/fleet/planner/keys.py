"""The label, annotation and taint keys of the design, spelled once."""

from typing import Final

ROLE: Final = "cke.cybozu.com/role"
WEIGHT: Final = "cke.cybozu.com/weight"
RACK: Final = "cke.cybozu.com/rack"
INDEX_IN_RACK: Final = "cke.cybozu.com/index-in-rack"
REGISTER_MONTH: Final = "cke.cybozu.com/register-month"
RETIRE_MONTH: Final = "cke.cybozu.com/retire-month"
ZONE: Final = "topology.kubernetes.io/zone"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
NODE_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
MASTER_ROLE: Final = "node-role.kubernetes.io/master"
CONTROL_PLANE_ROLE: Final = "node-role.kubernetes.io/control-plane"
MACHINE_LABEL_PREFIX: Final = "sabakan.cke.cybozu.com/"

SERIAL: Final = "cke.cybozu.com/serial"
REGISTER_DATE: Final = "cke.cybozu.com/register-date"
RETIRE_DATE: Final = "cke.cybozu.com/retire-date"

STATE_TAINT: Final = "cke.cybozu.com/state"
MASTER_TAINT: Final = "cke.cybozu.com/master"
KUBERNETES_TAINT_PREFIX: Final = "node.kubernetes.io/"
OUR_PREFIX: Final = "mooring.dev/"
