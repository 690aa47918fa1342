"""The table in docs/security.md is complete and true: every key of ours has a row, and every row a test."""

import ast
import re
from pathlib import Path

import pytest

from mooring.clients.wire.annotations import KEPT

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("| \n").split(" | ")]
    for line in (ROOT / "docs/security.md").read_text().splitlines()
    if line.startswith("| `") and "tests/" in line
]
PREFIXES = r"(?:mooring\.dev|vacant\.io|tidb\.pingcap\.com|node-restriction\.kubernetes\.io)/"
KEY = re.compile(rf"""["']({PREFIXES}[A-Za-z0-9_.-]+)["']""")
COMPOSED = re.compile(rf"""["']{PREFIXES}[A-Za-z0-9_.-]*\{{""")
#: What no running Mooring reads.
ASIDE = {"sandbox", "lab", "sim", "demo", "rehearse", "cli"}


def test_every_key_has_a_row():
    """A key that nobody has thought about is a way in."""
    files = [file for file in (ROOT / "src/mooring").rglob("*.py") if not ASIDE.intersection(file.parts)]
    used = {key for file in files for key in KEY.findall(file.read_text())}
    assert used == {key for row in ROWS for key in re.findall(r"`([^`]+)`", row[0])}
    assert not [file for file in files if COMPOSED.search(file.read_text())], "a key in two halves is seen by nobody"


def test_what_we_read_of_others_is_named():
    """All other annotations are dropped at the edge."""
    text = (ROOT / "docs/security.md").read_text()
    ours = {"mooring.dev/", "vacant.io/", "tidb.pingcap.com/"}
    others = {key for keys in KEPT.values() for key in keys if key} - ours
    assert others and [key for key in others if f"`{key}" not in text] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].split("`")[1])
def test_every_row_has_a_test(row):
    """The test that a row names exists."""
    assert len(row) == 6
    path, _, name = row[5].strip("`").partition("::")
    tree = ast.parse((ROOT / path).read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in names if name else any(one.startswith("test_") for one in names)
