"""Feature gates: one comma-separated list for the whole product, parsed strictly.

`StableScheduling` is the design's name for `home`. tidb-operator's other gates may stand in the same line, since users
share one line between the tools: they are ignored, with a warning.
"""

from typing import Final

from mooring.capabilities.registry import names
from mooring.core.model.spelling import did_you_mean

ALIASES: Final = {"StableScheduling": "home"}
#: Names of an earlier version, understood for one release.
FORMER: Final = {"traffic": "balance"}
#: tidb-operator's own gates, not ours.
FOREIGN: Final = frozenset({"AdvancedStatefulSet", "VolumeModifying", "VolumeReplacing", "AutoScaling"})
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class UnknownFeatureError(ValueError):
    """A list of features that cannot be taken as it stands; the message names the allowed ones."""


def parse_features(text: str) -> tuple[dict[str, bool], list[str]]:
    """`home=true,mix=false` → the switches it sets, and warnings about names that belong to other tools."""
    switches: dict[str, bool] = {}
    warnings: list[str] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise UnknownFeatureError(
                f"feature {name!r} has no value; write {name}=true or {name}=false ({_allowed()})"
            )
        if value not in _TRUE | _FALSE:
            raise UnknownFeatureError(f"feature {name}={value!r} is not a boolean; write {name}=true or {name}=false")
        ours = FORMER.get(name) or ALIASES.get(name, name)
        if name in FORMER:
            warnings.append(f"feature {name} is called {ours} now; the former name will be removed")
        if name in FOREIGN:
            warnings.append(f"feature {name} belongs to tidb-operator and is ignored")
        elif ours not in names():
            raise UnknownFeatureError(
                f"unknown feature {name!r}; {_allowed()}{did_you_mean(name, (*names(), *ALIASES))}"
            )
        else:
            switches[ours] = value in _TRUE
    return switches, warnings


def _allowed() -> str:
    return f"allowed: {', '.join(names())}, StableScheduling"
