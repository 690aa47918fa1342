"""Kinds that others define, as the tests on the real control plane install them: one definition of each for a lab."""

import json

from mooring.core.model.kinds import RESOURCES, Kind
from mooring_lab.control.cluster import Lab
from tests.e2e.spine_environment import CRD

CRD_KIND = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}


def define(lab: Lab, *kinds: Kind) -> None:
    """TidbCluster with its schema, which drops what it does not name; the others as far as they are watched."""
    for kind in kinds:
        made = {**CRD_KIND, **CRD} if kind == Kind.TIDB_CLUSTER else _anything(kind)
        lab.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(made))
        lab.kubectl("wait", "--for=condition=Established", f"crd/{made['metadata']['name']}", "--timeout=60s")


def _anything(kind: Kind) -> dict:
    resource = RESOURCES[kind]
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        **CRD_KIND,
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {"plural": resource.plural, "singular": str(kind).lower(), "kind": str(kind)},
            "versions": [{"name": resource.version, "served": True, "storage": True, "schema": schema}],
        },
    }
