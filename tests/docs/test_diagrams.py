"""The diagrams, Mermaid in the pages, are made of the code's names."""

import re
from functools import cache

import pytest

from tests.docs.test_docs import PAGES, ROOT, name

MERMAID = re.compile(r"^```mermaid\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Names as the code writes them: CamelCase, snake_case, and keys of ours.
NAMES = re.compile(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b|\b[a-z]+_[a-z_]+\b|\b(?:mooring\.dev|vacant\.io)/[\w-]+|core/\w+")
#: Kinds of Kubernetes.
FREE = {"ReplicaSet"}
DIAGRAMS = [pytest.param(found, id=name(page)) for page in PAGES for found in MERMAID.findall(page.read_text())]


@cache
def program():
    """All text of the program."""
    return "\n".join(file.read_text() for file in sorted((ROOT / "src" / "mooring").rglob("*.py")))


@pytest.mark.parametrize("diagram", DIAGRAMS)
def test_diagrams_use_the_names_of_the_code(diagram):
    """A step, an instruction, an annotation or a function that a picture names is there."""
    missing = []
    for word in set(NAMES.findall(diagram)) - FREE:
        there = (ROOT / "src" / "mooring" / word).is_dir() if word.startswith("core/") else word in program()
        if not there:
            missing.append(word)
    assert missing == []
