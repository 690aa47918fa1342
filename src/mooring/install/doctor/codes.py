"""The stable codes. Each has a section in docs/doctor.md; scripts and people match on them. Add, never rename."""

import re
from pathlib import Path
from typing import Final

from mooring.capabilities.registry import descriptors

#: In a checkout; a wheel has the page among its files.
DOCS: Final = Path(__file__).parents[4] / "docs" / "doctor.md"
INSTALLED: Final = Path(__file__).parents[1] / "files" / "doctor.md"


def see(code: str) -> str:
    """Where to read about a code: an address that opens, or the command that prints what it means."""
    return f"{DOCS.as_uri()}#{code.lower()}" if DOCS.exists() else f"mooring doctor --code {code}"


def meaning(code: str) -> str:
    """The section about this code: cause and fix."""
    page = DOCS if DOCS.exists() else INSTALLED
    found = re.search(rf"^## {code}\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def codes() -> dict[str, str]:
    """Code → what it says, in order; those of capabilities come from their descriptors."""
    theirs = {code: words for one in descriptors() for code, words in one.codes.items()}
    return dict(sorted({**_OURS, **theirs}.items()))


_OURS: Final[dict[str, str]] = {
    "MO101": "The API server cannot be reached",
    "MO102": "The Kubernetes version is older than what is tested",
    "MO103": "This machine's clock and the cluster's differ",
    "MO104": "The TidbCluster kind is not there",
    "MO201": "Our namespace does not exist",
    "MO202": "A right is missing",
    "MO203": "You may not install",
    "MO301": "No Mooring answers",
    "MO302": "No replica holds the lease",
    "MO303": "The leader does not decide",
    "MO304": "A replica is not ready",
    "MO305": "Another set of features runs than was asked for",
    "MO306": "The black box has stopped recording",
    "MO307": "The agent is silent, or cannot read its cloud",
    "MO401": "The webhook configurations are missing",
    "MO402": "The API server does not reach the webhook",
    "MO403": "Webhook configurations are there though mix and drain are off",
    "MO501": "The extender does not answer",
    "MO502": "No scheduler asks the extender",
    "MO601": "A PD cannot be reached",
    "MO602": "An evict-leader scheduler without a cause",
    "MO605": "A system with leaders cannot be read",
    "MO701": "A mark cannot be read",
    "MO702": "A mark of something that no longer runs",
    "MO703": "What a switched-off feature began is still there",
    "MO801": "The settings are not valid",
    "MO802": "Readers have no token",
    "MO803": "The page's certificate is self-signed",
    "MO804": "The extender refuses every scheduler",
    "MO805": "pd-hosts allows any address",
    "MO806": "Credentials travel in plain text",
    "MO807": "The webhook's port is open to every pod, or closed to an API server",
}
