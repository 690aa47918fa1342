"""What stands under `to change` can be typed: a word what for, then the command, whole, to the end of the line."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooring.core.engine.why.commands import split_remedy
from mooring.core.engine.why.words import COMMAND, WIDTH
from mooring.core.model.decision import Line

HERE = Path(__file__).parent
CAPABILITIES = HERE.parents[2] / "src" / "mooring" / "capabilities"
GOLDEN = sorted([*(HERE / "golden").glob("*.txt"), *(HERE / "by-kind").glob("*.txt")])
#: A remark behind a command, or something left to fill in.
REMARK = re.compile(r"[,;] |[,;.]$|…|<|\b(?:KEY|VALUE|NAME|FILE)\b| (?:where|once|then|unless) ")


def whole(command: str) -> bool:
    """A shell takes it as it stands."""
    return not REMARK.search(re.sub(r"'[^']*'", "", command)) and len(shlex.split(command)) > 1


def to_change(text: str) -> Iterator[str]:
    label = ""
    for line in text.splitlines():
        label = line[:WIDTH].strip() or (label if line.strip() else "")
        if label == "to change":
            yield line[WIDTH:]


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_every_command_under_to_change_can_be_pasted(file):
    """O3: no line there goes on in words behind its command, and none has a blank to fill in."""
    for line in to_change(file.read_text()):
        found = COMMAND.search(line)
        if found is not None:
            assert found.start() == WIDTH, line
            assert whole(line[WIDTH:]), line


def remedies() -> Iterator[tuple[str, str]]:
    """Every remedy that a capability writes down, with x for what it fills in."""
    for module in sorted(CAPABILITIES.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            value = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Verdict":
                named = [one.value for one in node.keywords if one.arg == "remedy"]
                value = next(iter([*named, *node.args[3:4]]), None)
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in {"remedy", "ends", "STUCK"}:
                value = node.value
            if isinstance(value, ast.Constant | ast.JoinedStr):
                parts = value.values if isinstance(value, ast.JoinedStr) else [value]
                said = "".join(str(p.value) if isinstance(p, ast.Constant) else "x" for p in parts)
                yield f"{module.relative_to(CAPABILITIES)}:{node.lineno}", said


def test_every_remedy_ends_with_its_command():
    """`once it is off: kubectl …`: words before, the command to the end."""
    found = dict(remedies())
    assert len(found) > 10
    for where, said in found.items():
        for line in split_remedy(said):
            if COMMAND.search(line.text):
                assert whole(line.text[WIDTH:]), (where, said)


def test_words_and_command_stand_apart():
    assert list(split_remedy("once it is off: kubectl delete node n1")) == [
        Line("to change", "once it is off"),
        Line("to change", "do          kubectl delete node n1"),
    ]
    assert list(split_remedy("wait for it")) == [Line("to change", "wait for it")]
