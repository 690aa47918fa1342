"""A document of fleet, read: what it says, or what is wrong with it as a value: a code for scripts, words for people.

The rules for names, label keys and values, and taints are those of Kubernetes; each answers with what would be right.
"""

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any, Final

import msgspec

from mooring.clients.wire.document import decode


class ErrorCode(StrEnum):
    NOT_AVAILABLE = "not-available"
    TOO_MANY_NON_EXISTENT = "too-many-non-existent"
    MISSING_MACHINE = "missing-machine"
    INVALID_TEMPLATE = "invalid-template"
    INVALID_CONSTRAINTS = "invalid-constraints"
    INVALID_MACHINES = "invalid-machines"
    INVALID_CLUSTER = "invalid-cluster"
    INVALID_NODES = "invalid-nodes"


#: What the user fixes in a file; the others are refusals by a rule.
INVALID_INPUT: Final = frozenset(code for code in ErrorCode if code.value.startswith("invalid-"))
_SHOWN: Final = 20


class PlanError(msgspec.Struct, frozen=True):
    code: ErrorCode
    message: str


def invalid(code: ErrorCode, where: str, problems: Iterable[str]) -> PlanError:
    """Every problem of one file at once, so that it is fixed in one go."""
    found = list(problems)
    shown = "; ".join(found[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return PlanError(code, f"{where}: {shown}{more}")


def decode_document(raw: bytes, where: str, code: ErrorCode) -> Any | PlanError:
    try:
        return decode(raw)
    except ValueError as error:
        return PlanError(code, f"{where}: {error}")


NAME_RULE: Final = "at most 63 of [A-Za-z0-9._-], beginning and ending with a letter or digit"
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
_PREFIX: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*\Z")


def is_name(text: str) -> bool:
    return _NAME.match(text) is not None


@lru_cache(maxsize=4096)
def is_key(text: str) -> bool:
    """A qualified name: `name` or `dns.prefix/name`."""
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > 253 or not _PREFIX.match(prefix)):
        return False
    return is_name(name)


@lru_cache(maxsize=4096)
def is_label_value(text: str) -> bool:
    return text == "" or is_name(text)


def is_ip(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_cidr(text: object) -> bool:
    if not isinstance(text, str) or "/" not in text:
        return False
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def string_map_problems(value: Any, path: str, *, labels: bool) -> Iterator[str]:
    """Labels (values restricted) or annotations (any text)."""
    if value is None:
        return
    if not isinstance(value, dict):
        yield f"{path}: must be a map of text to text, not {kind_of(value)}"
        return
    for key, text in value.items():
        if not isinstance(key, str) or not is_key(key):
            yield f"{path}: key {key!r} is not a Kubernetes key ([dns.prefix/]name; name: {NAME_RULE})"
        if not isinstance(text, str):
            yield f'{path}[{key!r}]: must be text, not {kind_of(text)}; put it in quotes: "{text}"'
        elif labels and not is_label_value(text):
            yield f"{path}[{key!r}]: {text!r} is not a label value ({NAME_RULE}, or empty)"


def taint_problems(value: Any, path: str) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, list):
        yield f"{path}: must be a list of taints, not {kind_of(value)}"
        return
    for index, taint in enumerate(value):
        at = f"{path}[{index}]"
        if not isinstance(taint, dict):
            yield f"{at}: must be a map with key, value and effect, not {kind_of(taint)}"
            continue
        key, text, effect = taint.get("key"), taint.get("value"), taint.get("effect")
        if not isinstance(key, str) or not is_key(key):
            yield f"{at}.key: {key!r} is not a Kubernetes key ([dns.prefix/]name)"
        if text is not None and (not isinstance(text, str) or not is_label_value(text)):
            yield f"{at}.value: {text!r} is not a label value ({NAME_RULE}, or empty)"
        if effect not in EFFECTS:
            yield f"{at}.effect: {effect!r} is none of {', '.join(EFFECTS)}"


def kind_of(value: object) -> str:
    return {dict: "a map", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}.get(
        type(value), "nothing" if value is None else type(value).__name__
    )
