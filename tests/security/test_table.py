"""The table in docs/security.md is complete and true: every key of ours has a row, and every row a test."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("| \n").split(" | ")]
    for line in (ROOT / "docs/security.md").read_text().splitlines()
    if line.startswith("| `") and "tests/" in line
]
#: Written to be read by others (a Secret's bookkeeping, a label that a manifest selects by) or part of a prefix.
KEY = re.compile(r'"((?:mooring\.dev|vacant\.io)/[a-z-]+)"')


def test_every_key_has_a_row():
    """A key that nobody has thought about is a way in."""
    used = {
        key
        for file in (ROOT / "src/mooring").rglob("*.py")
        if "sandbox" not in file.parts and "lab" not in file.parts
        for key in KEY.findall(file.read_text())
    }
    assert used == {key for row in ROWS for key in re.findall(r"`([^`]+)`", row[0])}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].split("`")[1])
def test_every_row_has_a_test(row):
    """The test that a row names exists."""
    assert len(row) == 6
    path, _, name = row[5].strip("`").partition("::")
    tree = ast.parse((ROOT / path).read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in names if name else any(one.startswith("test_") for one in names)
