"""The diagrams: each is of a kind that Mermaid knows, well formed line by line, and made of names that the code has."""

import re
from functools import cache

import pytest

from tests.docs.test_docs import PAGES, ROOT, name

BLOCK = re.compile(r"^```mermaid\n(.*?)^```", re.MULTILINE | re.DOTALL)
DIAGRAMS = [
    pytest.param(text, id=f"{name(page)}:{number}")
    for page in PAGES
    for number, text in enumerate(BLOCK.findall(page.read_text()), 1)
]
TEXT = r"\"[^\"]*\""
NODE = rf"\w+(?:\[{TEXT}\]|\({TEXT}\)|\{{{TEXT}\}})?"
SEQUENCE = (
    r"(?:participant|actor) \w+(?: as .+)?",
    r"\w+(?:->>|-->>|-x|--x)\w+: .+",
    r"Note (?:over|left of|right of) \w+(?:,\w+)?: .+",
    r"(?:loop|alt|opt|par|else|and) .+",
    r"end",
)
FLOW = (
    r"subgraph \w+(?:\[.+\])?",
    r"end",
    NODE,
    rf"{NODE} (?:-->|---|-\.->|-- (?:{TEXT}|[\w ]+) -->) {NODE}",
)
STATE = (r"(?:\[\*\]|\w+) --> (?:\[\*\]|\w+)(?:: .+)?",)
KINDS = {
    r"sequenceDiagram": SEQUENCE,
    r"flowchart (?:LR|TD|TB|RL)": FLOW,
    r"stateDiagram-v2": STATE,
}
#: Names as the code writes them: CamelCase, snake_case, and keys of ours.
NAMES = re.compile(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b|\b[a-z]+_[a-z_]+\b|\b(?:mooring\.dev|vacant\.io)/[\w-]+|core/\w+")
#: States of the diagram itself, and kinds of Kubernetes.
FREE = {"ReplicaSet"}


@cache
def source():
    """All text of the program."""
    return "\n".join(file.read_text() for file in sorted((ROOT / "src" / "mooring").rglob("*.py")))


def test_there_is_a_picture_of_each():
    """Hand-over, queue with costs, interruption, admission, retirement, fail-over: one in each page that tells of it."""
    with_one = {page.stem: len(BLOCK.findall(page.read_text())) for page in PAGES}
    assert all(with_one[page] >= least for page, least in [("handoff", 1), ("queue", 1), ("mix", 2), ("fleet", 1)])
    assert with_one["architecture"] >= 2


@pytest.mark.parametrize("diagram", DIAGRAMS)
def test_diagrams_are_well_formed(diagram):
    """Every line is one that its kind of diagram has; blocks are closed; who speaks was introduced."""
    head, *lines = [line.strip() for line in diagram.splitlines() if line.strip()]
    grammar = next((lines_ for kind, lines_ in KINDS.items() if re.fullmatch(kind, head)), None)
    assert grammar is not None, f"not a kind of diagram that we use: {head}"
    wrong = [line for line in lines if not any(re.fullmatch(form, line) for form in grammar)]
    assert wrong == []
    opened = sum(bool(re.match(r"(?:subgraph|loop|alt|opt|par)\b", line)) for line in lines)
    assert opened == lines.count("end")
    if grammar is SEQUENCE:
        known = {m[1] for line in lines if (m := re.match(r"(?:participant|actor) (\w+)", line))}
        used = {who for line in lines if (m := re.match(r"(\w+)-?-(?:>>|x)(\w+):", line)) for who in m.groups()}
        assert used - known == set()
        assert not any(";" in line for line in lines), "Mermaid ends a statement at a semicolon"


@pytest.mark.parametrize("diagram", DIAGRAMS)
def test_diagrams_use_the_names_of_the_code(diagram):
    """A step, an instruction, an annotation or a function that a picture names is there."""
    missing = []
    for word in set(NAMES.findall(diagram)) - FREE:
        there = (ROOT / "src" / "mooring" / word).is_dir() if word.startswith("core/") else word in source()
        if not there:
            missing.append(word)
    assert missing == []
