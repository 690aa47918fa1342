"""A node of cluster.yml as JSON text: the same as `Renderer` writes, without the dicts between.

A first generation of 10,000 machines is 6 MB of JSON. As dicts it is forty thousand objects that are made, visited by
the garbage collector, encoded once and thrown away; as text, what the machines of one role and set of labels
share is encoded once, and the rest is one format per machine.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.fleet.planner.files.template import Template
from mooring.capabilities.fleet.planner.labels import Renderer
from mooring.capabilities.fleet.planner.plan import Assignment
from mooring.capabilities.fleet.planner.taints import wanted_state_taint
from mooring.core.model.machine import Machine
from mooring.core.model.times import rfc3339

_encode: Final[Callable[[Any], bytes]] = msgspec.json.Encoder().encode
#: Of the machine alone: they stand behind what is shared.
_OWN_LABELS: Final = frozenset(
    {keys.RACK, keys.ZONE, keys.BETA_ZONE, keys.INDEX_IN_RACK, keys.REGISTER_MONTH, keys.RETIRE_MONTH}
)
_OWN_ANNOTATIONS: Final = frozenset({keys.SERIAL, keys.REGISTER_DATE, keys.RETIRE_DATE})
_SERIAL, _REGISTER, _RETIRE = (_encode(k).decode() for k in (keys.SERIAL, keys.REGISTER_DATE, keys.RETIRE_DATE))
_RACK, _ZONE, _BETA_ZONE = (_encode(k).decode() for k in (keys.RACK, keys.ZONE, keys.BETA_ZONE))
_INDEX, _REGISTER_MONTH, _RETIRE_MONTH = (
    _encode(k).decode() for k in (keys.INDEX_IN_RACK, keys.REGISTER_MONTH, keys.RETIRE_MONTH)
)
#: What comes after the address, before the machine's own annotations, between them and its own labels, at the end.
_Parts = tuple[str, str, str]


class NodeText:
    def __init__(self, template: Template) -> None:
        self._renderer = Renderer(template)
        #: By what a node depends on besides the machine's own serial, place and dates. The labels are held, so that
        #: their identity stays theirs.
        self._parts: dict[tuple[bool, str, str, int], tuple[_Parts, Mapping[str, str]]] = {}

    def nodes(self, assignments: Iterable[Assignment]) -> msgspec.Raw:
        """The list of nodes, ready to be put into a document."""
        written = [
            self._node(s.machine, s.control_plane)
            if s.machine is not None
            else _encode(self._renderer.vanished(s.address, control_plane=s.control_plane, kept=s.kept)).decode()
            for s in assignments
        ]
        return msgspec.Raw(f"[{','.join(written)}]".encode())

    def _node(self, m: Machine, control_plane: bool) -> str:
        labels = m.labels
        known = self._parts.get((control_plane, m.role, m.state, id(labels)))
        head, middle, tail = known[0] if known is not None else self._share(m, control_plane)
        registered = m.register_date or rfc3339(m.registered_at)
        retires = m.retire_date or rfc3339(m.retire_at)
        serial, rack = m.serial, m.rack
        if not (serial.isascii() and serial.isalnum()):
            return self._quoted(m, control_plane)
        return (
            f'{{"address":"{m.address}",{head}{_SERIAL}:"{serial}",{_REGISTER}:"{registered}",{_RETIRE}:"{retires}"'
            f'{middle}{_RACK}:"{rack}",{_ZONE}:"rack{rack}",{_BETA_ZONE}:"rack{rack}",{_INDEX}:"{m.index_in_rack}",'
            f'{_REGISTER_MONTH}:"{registered[:7]}",{_RETIRE_MONTH}:"{retires[:7]}"{tail}'
        )

    def _quoted(self, m: Machine, control_plane: bool) -> str:
        """A serial that may need escapes: the long way."""
        return _encode(self._written(m, control_plane)).decode()

    def _written(self, m: Machine, control_plane: bool) -> dict[str, Any]:
        return self._renderer.node(m, control_plane=control_plane, state_taint=wanted_state_taint(m.state))

    def _share(self, m: Machine, control_plane: bool) -> _Parts:
        node = self._written(m, control_plane)
        annotations = {k: v for k, v in node.pop("annotations").items() if k not in _OWN_ANNOTATIONS}
        labels = {k: v for k, v in node.pop("labels").items() if k not in _OWN_LABELS}
        del node["address"]
        taints = node.pop("taints")
        first = {"user": node.pop("user"), "control_plane": node.pop("control_plane")}
        head = f'{_members(first)},"annotations":{{{_members(annotations, ",")}'
        middle = f'}},"labels":{{{_members(labels, ",")}'
        parts = (head, middle, f"}},{_members({'taints': taints, **node})}}}")
        self._parts[control_plane, m.role, m.state, id(m.labels)] = (parts, m.labels)
        return parts


def _members(of: Mapping[str, Any], end: str = "") -> str:
    """The inside of a JSON object, with something behind it unless it is empty."""
    text = _encode(of).decode()[1:-1]
    return text + end if text else ""
