"""Home: a recreated member goes back to its node, which can be reserved for it meanwhile.

Modules: `members` (who has a home), `memory` (where it is, seen and written down), `verbs` (which candidates a member
may have, as answers to a scheduler) and `wire` (its requests), `reserve` (a node kept free), `capability` (what the
engine talks to), `report` (for people).
"""

from mooring.capabilities.home.capability import Home
from mooring.capabilities.home.policy import HomePolicy

__all__ = ["Home", "HomePolicy"]
