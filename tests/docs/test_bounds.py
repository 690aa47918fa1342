"""What a reader can take in: modules of at most 350 lines, functions of 60, classes of 15 attributes."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "mooring"
#: Plain rows with slots: what is known of a store, or of a node of the sandbox, side by side.
ROWS = {"StoreSummary", "NodeState"}


def attributes(of: ast.ClassDef) -> set[str]:
    """What its methods set on it. (Fields of structs are rows, not state.)"""
    return {
        node.attr
        for node in ast.walk(of)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def too_large(module: Path) -> Iterator[str]:
    text, where = module.read_text(), str(module.relative_to(SRC))
    if text.count("\n") > 350:
        yield f"{where}: {text.count(chr(10))} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 60:
            yield f"{where}: {node.name} has more than 60 lines"
        elif isinstance(node, ast.ClassDef) and node.name not in ROWS and len(attributes(node)) > 15:
            yield f"{where}: {node.name} has {len(attributes(node))} attributes"


def test_modules_functions_and_classes_stay_small():
    """The longest module has 350 lines, no function more than 60, no class more than 15 attributes."""
    assert [words for module in sorted(SRC.rglob("*.py")) for words in too_large(module)] == []


def test_a_class_name_means_one_thing():
    """language.md: two classes of one name are one class, or have a name each."""
    found = [re.findall(r"^class (\w+)", module.read_text(), re.MULTILINE) for module in SRC.rglob("*.py")]
    assert [name for name, times in Counter(chain.from_iterable(found)).items() if times > 1] == []


# ── Thin commands ─────────────────────────────────────────────────────────────────────────────────────────────────

#: A command has flags and help; what it does beyond asking, printing and its exit code is in the packages.
THIN = 210
BODY = 30
ALL_BODIES = 1600


def bodies(module: Path) -> Iterator[tuple[str, int]]:
    """Lines of each function below its flags and its help."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            said = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if said:
                yield f"{module.name}: {node.name}", (node.end_lineno or 0) - said[0].lineno + 1


def test_commands_are_thin():
    """A module of `cli/` parses flags, connects, asks one thing, prints and exits: rules and rendering live elsewhere."""
    modules = sorted((SRC / "cli").glob("*.py"))
    assert [m.name for m in modules if m.read_text().count("\n") > THIN] == []
    found = [one for module in modules for one in bodies(module)]
    assert [one for one in found if one[1] > BODY] == []
    assert sum(lines for _, lines in found) <= ALL_BODIES
