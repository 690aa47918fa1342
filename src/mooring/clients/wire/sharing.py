"""One instance of whatever repeats: strings, label maps, owners, pod shapes.

The tables are bounded by entries and by bytes (`core.model.limits`). `sys.intern` would serve the strings on
Python 3.11, but makes them immortal on 3.12.
"""

from collections.abc import Hashable, Mapping

from mooring.core.model.cluster import NO_LABELS, Owner, PodShape
from mooring.core.model.limits import MIB, MOST_LABELS, SharedValues

Pairs = tuple[tuple[str, str], ...]

_strings: SharedValues[str, str] = SharedValues(65536, 4 * MIB)
_maps: SharedValues[Pairs, Mapping[str, str]] = SharedValues(8192, 4 * MIB)
_owners: SharedValues[tuple[str, str, str, str], Owner] = SharedValues(32768, 4 * MIB)
#: Keyed by all that a shape is made of (see `pods.py`).
shapes: SharedValues[Hashable, PodShape] = SharedValues(16384, 12 * MIB)


def text(value: str) -> str:
    """For strings that many objects carry: namespaces, node names, keys and values of labels, phases."""
    return _strings.get(value) or _strings.put(value, value)


def pairs(mapping: Mapping[str, str] | None) -> Pairs:
    """A hashable, order-free form of a map of strings, cut to size."""
    if not mapping:
        return ()
    return tuple(sorted(mapping.items())[:MOST_LABELS])


def labels(mapping: Mapping[str, str] | None) -> Mapping[str, str]:
    """One shared map per distinct content; the shared empty one when there is nothing."""
    if not mapping:
        return NO_LABELS
    key = pairs(mapping)
    return _maps.get(key) or _maps.put(key, {text(k): text(v) for k, v in key})


def owner(kind: str, name: str, uid: str, api_version: str) -> Owner:
    key = (uid, kind, name, api_version)
    return _owners.get(key) or _owners.put(key, Owner(text(kind), name, uid, text(api_version)))
