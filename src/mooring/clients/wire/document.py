"""cluster.yml, constraints and node lists as text: YAML or JSON in, YAML or JSON out, nothing changed on the way.

YAML has readings that are not meant in these files: an unquoted date becomes a timestamp, `1:30` becomes ninety. Both
stay the text that was written. A key given twice is refused: the second one would silently win. On the way out a
string that some reader would take for a number (`12e5`, a serial) is quoted.
"""

import re
from typing import Any, Final

import msgspec
import yaml

from mooring.core.model.limits import MIB, weight

_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_INT: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
_PLAIN_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+|0o[0-7]+)\Z")
_PLAIN_FLOAT: Final = re.compile(
    r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?\Z|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
)
#: What YAML 1.1 or 1.2 readers take for something other than a string, beyond what PyYAML itself knows of.
_AMBIGUOUS: Final = re.compile(r"(?:[-+.]?[0-9][-+.0-9_a-fA-FoxeE:]*|[yYnN]|[-+]?\.?(?:inf|nan))\Z", re.IGNORECASE)

#: Deeper than any real file. Far deeper, the parser runs out of stack and crashes the process.
_DEEPEST: Final = 500
#: Bytes of memory: 10,000 machines are about a fifth of it.
_LARGEST: Final = 256 * MIB
_BRACKETS: Final = re.compile(rb"[\[{\]}]")
_DASHES: Final = re.compile(rb"(?:[-?:][ \t]+){%d}" % _DEEPEST)


class _Loader(yaml.CSafeLoader):
    """The safe loader without dates and base-60 numbers, refusing a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, rule) for tag, rule in rules if tag not in {_TIMESTAMP, _INT, _FLOAT}]
    for first, rules in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INT, _PLAIN_INT, list("-+0123456789"))
_Loader.add_implicit_resolver(_FLOAT, _PLAIN_FLOAT, list("-+.0123456789"))


def _construct_int(_: _Loader, node: yaml.ScalarNode) -> int:
    return int(str(node.value), 0) if node.value.lstrip("+-")[:2] in {"0x", "0o"} else int(node.value)


_Loader.add_constructor(_INT, _construct_int)


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _quoted_when_ambiguous(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "'" if _AMBIGUOUS.match(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _quoted_when_ambiguous)


def decode(raw: bytes) -> Any:
    """JSON (which is YAML, but a hundred times faster to read) or YAML, by its first character. Raises ValueError."""
    json_error = ""
    if raw.lstrip()[:1] in {b"{", b"["}:
        try:
            return msgspec.json.decode(raw)
        except msgspec.DecodeError as error:
            json_error = str(error)
        except RecursionError:
            raise ValueError("not readable: it is nested too deep") from None
    if _too_deep(raw):
        raise ValueError("not readable: it is nested too deep")
    try:
        return unfolded(yaml.load(raw, _Loader))  # noqa: S506  (a safe loader, narrowed further)
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        reason = f"not readable as JSON ({json_error}) nor as YAML ({said})" if json_error else f"not YAML: {said}"
        raise ValueError(reason) from None
    except ValueError as error:
        raise ValueError(f"not readable: {error}") from None


def unfolded(value: Any) -> Any:
    """The same. ValueError: with its aliases written out it is larger than any real file, or has no end."""
    if weight(value, _LARGEST) > _LARGEST:
        raise ValueError(f"its aliases unfold to more than {_LARGEST // MIB} MiB")
    return value


def _too_deep(raw: bytes) -> bool:
    depth = 0
    for found in _BRACKETS.finditer(raw):
        depth = depth + 1 if found[0] in b"[{" else max(0, depth - 1)
        if depth > _DEEPEST:
            return True
    return _DASHES.search(raw) is not None


def encode_yaml(document: Any) -> str:
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True))
