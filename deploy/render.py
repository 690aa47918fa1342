"""Write what is made from code: the chart's rights and alerts, and the dashboard. A test says when it must be run."""

import json
import sys
from pathlib import Path

from mooring.capabilities.registry import hooks
from mooring.install.agent import agent
from mooring.install.manifests import webhooks
from mooring.install.policy import policy
from mooring.install.rights import merged, rights_table

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "monitoring"))

from dashboard import dashboard  # noqa: E402

#: Replaced by the release's namespace.
NAMESPACE = "mooring-system"
#: Replaced by the release's image.
IMAGE = "mooring-image"


def _policies() -> dict[str, list[dict[str, object]]]:
    """With fleet and without."""
    return {
        name: policy(NAMESPACE, features, {"app.kubernetes.io/name": "mooring"})
        for name, features in (("fleet", {"fleet"}), ("others", set()))
    }


def _webhooks() -> dict[str, list[dict[str, object]]]:
    """By the features that are on."""
    asked = {"mix": ("mix",), "drain": ("drain",), "both": ("mix", "drain")}
    return {name: webhooks(NAMESPACE, hooks(features)) for name, features in asked.items()}


def rendered() -> dict[str, str]:
    """Path under deploy/ → its text."""
    rights = {
        name: {"cluster": merged(found, own=False), "own": merged(found, own=True)}
        for name, found in rights_table().items()
    }
    return {
        "chart/mooring/files/agent.json": json.dumps(agent(NAMESPACE, IMAGE), indent=1) + "\n",
        "chart/mooring/files/rights.json": json.dumps(rights, indent=1) + "\n",
        "chart/mooring/files/policy.json": json.dumps(_policies(), indent=1) + "\n",
        "chart/mooring/files/webhooks.json": json.dumps(_webhooks(), indent=1) + "\n",
        "chart/mooring/files/alerts.yaml": (HERE / "monitoring/alerts.yaml").read_text(),
        "monitoring/dashboard.json": json.dumps(dashboard(), indent=1) + "\n",
    }


if __name__ == "__main__":
    for path, text in rendered().items():
        (HERE / path).write_text(text)
