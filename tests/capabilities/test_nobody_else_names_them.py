"""Rule 5: what belongs to one capability stands behind its descriptor; the other layers know none by name."""

import re
from pathlib import Path

import mooring
from mooring.capabilities.registry import names

SRC = Path(mooring.__file__).parent
LAYERS = ("core", "process", "install", "cli")
#: A capability's name as a word of its own in quotes, or an import of its package.
NAMED = re.compile(rf"""["'](?:{"|".join(names())})["']|capabilities[. ](?:import )?(?:{"|".join(names())})\b""")

#: Path → why a capability is named there. What a pure capability cannot do itself is done by an edge of its own; and a
#: command is about one of them.
ALLOWED = {
    "cli/__init__.py": "the list of commands, imported when one is typed",
    "cli/balance.py": "its command",
    "cli/drain.py": "its command",
    "cli/fleet.py": "its command",
    "cli/fleet_settings.py": "its command",
    "cli/fleet_show.py": "its command",
    "cli/handoff.py": "its command",
    "cli/home.py": "its command",
    "cli/maintain.py": "a command of drain",
    "cli/mix.py": "its command",
    "cli/restart.py": "a command of drain",
    "core/model/reasons.py": "words of the vocabulary that happen to be the same",
    "install/cleanup/balance.py": "what `mooring balance release` writes and asks PD for",
    "install/cleanup/undo.py": "what `mooring mix release` undoes",
    "install/scheduler.py": "the second kube-scheduler asks home",
    "process/admission/gatekeeper.py": "the webhook is the edge of drain",
    "process/admission/parts.py": "the webhook is the edge of mix and drain",
    "process/admission/reviewer.py": "the webhook is the edge of mix",
    "process/admission/server.py": "the webhook is the edge of mix",
    "process/blackbox/redact.py": "what fleet seals and packs is redacted, sealed and packed again",
    "process/extender.py": "the extender is the edge of home",
    "process/fleet/export.py": "what fleet has stored is handed on by an edge of its own",
    "process/fleet/repair.py": "the command of a repair is run by an edge of its own",
    "process/fleet/inputs.py": "files of `mooring fleet`",
    "process/fleet/store.py": "what `mooring fleet` reads and writes in the cluster",
    "process/http/mapview.py": "the map shows the class that a pod's label says",
    "process/http/moves.py": "the page puts PD's own region moves beside ours",
    "process/machine_registry.py": "the registry's address stands in the settings of fleet",
    "process/replica.py": "it puts the webhook and the export together, and records what slots took",
}


def test_no_other_layer_names_a_capability():
    """A sixth is its own package and one line of the registry: an `if name == "mix"` elsewhere would be a second one."""
    found = {
        str(path.relative_to(SRC))
        for layer in LAYERS
        for path in (SRC / layer).rglob("*.py")
        if NAMED.search("\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")))
    }
    assert found == set(ALLOWED)
