"""The few kubectl commands that acts type, understood in process: the sandbox has no kubectl, the lab has the real one.

    kubectl -n NS annotate|label KIND NAME… KEY=VALUE… [KEY-] [--overwrite]
    kubectl -n NS patch KIND NAME --type merge -p JSON
    kubectl -n NS delete KIND NAME…

So what an act prints is what it does, in both environments.
"""

import shlex
from typing import Final

import msgspec

from mooring.clients.ports import Json, KubeApi, RefusedError
from mooring.core.model.kinds import Kind

KINDS: Final = {
    "pod": Kind.POD,
    "node": Kind.NODE,
    "deploy": Kind.DEPLOYMENT,
    "sts": Kind.STATEFUL_SET,
    "tc": Kind.TIDB_CLUSTER,
}


class KubectlCommands(msgspec.Struct, frozen=True):
    """One command, read."""

    kind: Kind
    namespace: str
    names: tuple[str, ...]
    #: A merge patch.
    patch: Json
    #: `annotations`, `labels`, or "" for a whole patch.
    field: str = ""
    overwrite: bool = False
    delete: bool = False


def read(command: str) -> KubectlCommands:
    """A ValueError names what is not understood."""
    words = shlex.split(command)
    if words[:1] != ["kubectl"]:
        raise ValueError(f"{command!r}: begins with kubectl")
    flags, plain = _flags(words[1:])
    if not plain:
        raise ValueError(f"{command!r}: must be annotate, label or patch")
    verb, *rest = plain
    kind, names, rest = _named(command, rest)
    namespace = flags.get("-n", "")
    if verb == "patch" and flags.get("--type") == "merge" and not rest:
        return KubectlCommands(kind, namespace, names, msgspec.json.decode(flags.get("-p", "{}"), type=dict))
    if verb == "delete" and not rest:
        return KubectlCommands(kind, namespace, names, {}, delete=True)
    if verb not in {"annotate", "label"} or not rest:
        raise ValueError(f"{command!r}: must be annotate, label, delete or patch --type merge")
    field = "annotations" if verb == "annotate" else "labels"
    patch = {"metadata": {field: dict(_pair(word) for word in rest)}}
    return KubectlCommands(kind, namespace, names, patch, field, overwrite="--overwrite" in flags)


async def type_in(api: KubeApi, command: str) -> None:
    """Do it, with kubectl's own refusal to change what is there already without --overwrite."""
    typed = read(command)
    for name in typed.names:
        if typed.delete:
            await api.delete(typed.kind, typed.namespace, name)
            continue
        if typed.field and not typed.overwrite:
            found = (await api.get(typed.kind, typed.namespace, name))["metadata"].get(typed.field) or {}
            for key, value in typed.patch["metadata"][typed.field].items():
                if value is not None and found.get(key, value) != value:
                    raise RefusedError(f"'{key}' already has a value ({found[key]}), and --overwrite is false", 422)
        await api.patch(typed.kind, typed.namespace, name, typed.patch)


def _flags(words: list[str]) -> tuple[dict[str, str], list[str]]:
    flags, plain, left = dict[str, str](), list[str](), iter(words)
    for word in left:
        if word in {"-n", "-p", "--type"}:
            flags[word] = next(left, "")
        elif word.startswith("--"):
            flags[word] = ""
        else:
            plain.append(word)
    return flags, plain


def _named(command: str, words: list[str]) -> tuple[Kind, tuple[str, ...], list[str]]:
    """`deploy/web …` or `pod a b …`: the kind, the names, and what follows them."""
    first, *rest = words or [""]
    kind, slash, name = first.partition("/")
    if kind not in KINDS:
        raise ValueError(f"{command!r}: the kind must be one of {', '.join(KINDS)}, not {kind!r}")
    if slash:
        return KINDS[kind], (name,), rest
    names = [word for word in rest if not _is_pair(word)]
    if not names:
        raise ValueError(f"{command!r}: nothing is named")
    return KINDS[kind], tuple(names), [word for word in rest if _is_pair(word)]


def _is_pair(word: str) -> bool:
    return "=" in word or word.endswith("-")


def _pair(word: str) -> tuple[str, str | None]:
    key, equals, value = word.partition("=")
    return (key, value) if equals else (word.removesuffix("-"), None)
