"""The keys of the settings: which there are, where a file has one that is none, and what each holds now.

One spelling: kebab-case, nested ones with a dot between (`handoff.recheck-s`). A key that is not known is refused with
its file, its line and the nearest name. Secrets are never shown.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, get_type_hints

import msgspec
import yaml

from mooring.capabilities import registry
from mooring.core.model.spelling import did_you_mean

#: Never printed.
SECRETS: Final = frozenset({"http-token", "extender-token"})
HIDDEN: Final = "(set, not shown)"
#: Behind a name: it has settings inside.
_NESTED: Final = ".…"
_USER: Final = re.compile(r"(?<=://)[^/@\s]+@")


class Setting(msgspec.Struct, frozen=True):
    key: str
    value: Any
    #: "flag --x", "environment MOORING_X", "file P" or "default".
    source: str
    #: Taken over while running; else after a restart.
    follows: bool


def follows(key: str) -> bool:
    """Does a running replica take it over? The others need a restart."""
    return key in {"features", "queue", "windows", "policies", *registry.names()}


def unknown_key(text: str, of: type[msgspec.Struct], where: str = "") -> str:
    """The first key of a YAML text that is none of these settings, with its line in `where` and the nearest name, or
    those that there are; "": none."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return ""
    for prefix, name, line, known in _strange(root, of, ""):
        names = ", ".join(f"{prefix}{one}" for one in sorted(known))
        hint = did_you_mean(name, (one.removesuffix(_NESTED) for one in known), prefix) or f"; there are {names}"
        return f"{where and f'{where}:{line}: '}unknown setting {prefix + name!r}{hint}"
    return ""


def _strange(node: Any, of: type[msgspec.Struct], prefix: str) -> Iterator[tuple[str, str, int, list[str]]]:
    if not isinstance(node, yaml.MappingNode):
        return
    known = {field.encode_name: field.name for field in msgspec.structs.fields(of)}
    types = get_type_hints(of)
    nested = {name: kind for name, field in known.items() if _is_struct(kind := types[field])}
    for key, value in node.value:
        name = str(key.value)
        if name not in known:
            yield prefix, name, key.start_mark.line + 1, [f"{one}{_NESTED}" if one in nested else one for one in known]
        elif name in nested:
            yield from _strange(value, nested[name], f"{prefix}{name}.")


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def shown(key: str, value: Any) -> Any:
    """What may be printed of a value: no token, and no password inside an address."""
    if key in SECRETS:
        return HIDDEN if value else ""
    if isinstance(value, str):
        return _USER.sub("…@", value)
    if isinstance(value, dict):
        return {k: shown(f"{key}.{k}", v) for k, v in value.items()}
    return [shown(key, v) for v in value] if isinstance(value, (list, tuple)) else value


def settings(written: msgspec.Struct, sources: dict[str, str]) -> Iterator[Setting]:
    """Every setting, nested ones one by one, as it may be printed."""
    for field in msgspec.structs.fields(written):
        key, value = field.encode_name, getattr(written, field.name)
        live, source = follows(key), sources[key]
        if not isinstance(value, msgspec.Struct):
            yield Setting(key, shown(key, msgspec.to_builtins(value)), source, live)
            continue
        for inner in msgspec.structs.fields(value):
            mine = getattr(value, inner.name)
            path = f"{key}.{inner.encode_name}"
            default = mine == _default(inner)
            yield Setting(path, shown(path, msgspec.to_builtins(mine)), "default" if default else source, live)


def _default(field: Any) -> Any:
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
