"""Feature gates: one comma-separated list for the whole product, parsed strictly.

`StableScheduling` is the design's name for `home`. tidb-operator's other gates may stand in the same line, since users
share one line between the tools: they are ignored, with a warning.
"""

from typing import Final, Literal

from mooring.capabilities.registry import descriptors, names
from mooring.core.model.spelling import did_you_mean

#: tidb-operator's own gates, not ours.
FOREIGN: Final = frozenset({"AdvancedStatefulSet", "VolumeModifying", "VolumeReplacing", "AutoScaling"})
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
#: It decides, and shows what it would do, and does nothing (D9).
OBSERVE: Final = "observe"
Switch = bool | Literal["observe"]
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class UnknownFeatureError(ValueError):
    """A list of features that cannot be taken as it stands; the message names the allowed ones."""


def parse_features(text: str) -> tuple[dict[str, Switch], list[str]]:
    """`home=true,mix=false` → the switches it sets, and warnings about names that belong to other tools."""
    switches: dict[str, Switch] = {}
    warnings: list[str] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise UnknownFeatureError(
                f"feature {name!r} has no value; write {name}=true, {name}=observe or {name}=false ({_allowed()})"
            )
        if value not in _TRUE | _FALSE | {OBSERVE}:
            raise UnknownFeatureError(f"feature {name}={value!r}: write {name}=true, {name}=observe or {name}=false")
        ours, former = _called(name)
        if former:
            warnings.append(f"feature {name} is called {ours} now; the former name will be removed")
        if name in FOREIGN:
            warnings.append(f"feature {name} belongs to tidb-operator and is ignored")
        elif ours not in names():
            raise UnknownFeatureError(
                f"unknown feature {name!r}; {_allowed()}{did_you_mean(name, (*names(), *_aliases()))}"
            )
        else:
            switch: Switch = OBSERVE if value == OBSERVE else value in _TRUE
            if switches.get(ours, switch) != switch:
                said = _said(switches[ours])
                raise UnknownFeatureError(f"feature {name}={value} contradicts {ours}={said}: give one of them")
            switches[ours] = switch
    return switches, warnings


def _said(switch: Switch) -> str:
    return switch if isinstance(switch, str) else str(switch).lower()


def _called(name: str) -> tuple[str, bool]:
    """Its name now, and whether this is a former one. Only a name that is none is looked up in the descriptors."""
    if name in names():
        return name, False
    ours = next((one for one in descriptors() if name in (*one.aliases, *one.former)), None)
    return (ours.name, name in ours.former) if ours is not None else (name, False)


def _aliases() -> tuple[str, ...]:
    return tuple(alias for one in descriptors() for alias in one.aliases)


def _allowed() -> str:
    return f"allowed: {', '.join((*names(), *_aliases()))}"
