"""Home: a recreated member goes back to its node, which can be reserved for it meanwhile.

Modules: `members` (who has a home), `memory` (where it is), `bindings` (what was seen last), `choice` (which candidates
a member may have), `wire` and `verbs` (a scheduler's requests and their answers), `tracking` (writing nodes down),
`reserve` and `reservation` (a node kept free), `capability` (what the engine talks to), `report` and `explain` (for
people), `schedulerconfig` (what kube-scheduler needs).
"""

from mooring.capabilities.home.capability import Home
from mooring.capabilities.home.policy import HomePolicy

__all__ = ["Home", "HomePolicy"]
