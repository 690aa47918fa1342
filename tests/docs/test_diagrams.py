"""The diagrams: drawn from their source by docs/diagrams.py, stored as drawn, readable, and made of the code's names."""

import importlib.util
import re
import xml.etree.ElementTree as ET
from functools import cache
from itertools import combinations

import pytest

from tests.docs.test_docs import PAGES, ROOT

spec = importlib.util.spec_from_file_location("diagrams", ROOT / "docs" / "diagrams.py")
diagrams = importlib.util.module_from_spec(spec)
spec.loader.exec_module(diagrams)

SOURCES = [pytest.param(path, id=path.stem) for path in sorted(diagrams.SOURCES.glob("*.mmd"))]
#: Names as the code writes them: CamelCase, snake_case, and keys of ours.
NAMES = re.compile(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b|\b[a-z]+_[a-z_]+\b|\b(?:mooring\.dev|vacant\.io)/[\w-]+|core/\w+")
#: Kinds of Kubernetes.
FREE = {"ReplicaSet"}
SVG = "{http://www.w3.org/2000/svg}"


@cache
def program():
    """All text of the program."""
    return "\n".join(file.read_text() for file in sorted((ROOT / "src" / "mooring").rglob("*.py")))


def drawn(path):
    return ET.fromstring(diagrams.draw(path.read_text(), path.stem.replace("-", " ")))


def test_there_is_a_picture_of_each_and_a_page_that_shows_it():
    """Hand-over, queue with costs, interruption, retirement, fail-over, admission."""
    names = {path.values[0].stem for path in SOURCES}
    assert names >= {"hand-over", "queue", "interruption", "retirement", "fail-over", "admission"}
    text = "\n".join(page.read_text() for page in PAGES)
    assert [name for name in names if f"](images/diagrams/{name}.svg)" not in text] == []


@pytest.mark.parametrize("path", SOURCES)
def test_the_stored_picture_is_the_one_its_source_gives(path):
    """Changed one, not the other: run `python docs/diagrams.py`."""
    stored = diagrams.PICTURES / f"{path.stem}.svg"
    assert stored.read_text() == diagrams.draw(path.read_text(), path.stem.replace("-", " "))


@pytest.mark.parametrize("path", SOURCES)
def test_every_word_of_the_source_is_in_the_picture_and_none_covers_another(path):
    picture = drawn(path)
    texts = [(float(t.get("x")), float(t.get("y")), t.text) for t in picture.iter(f"{SVG}text")]
    shown = {text for _, _, text in texts}
    for label in re.findall(r"(?:->>\w+|Note over [\w,]+|--> (?:\w+|\[\*\])): (.+)$", path.read_text(), re.MULTILINE):
        assert label in shown
    for label in re.findall(r"\"([^\"]*)\"", path.read_text()):
        assert set(label.split("<br/>")) <= shown
    wide, high = float(picture.get("width")), float(picture.get("height"))
    half = {text: len(text) * diagrams.CHAR / 2 for text in shown}
    assert all(half[text] <= x <= wide - half[text] and 0 < y < high for x, y, text in texts)
    over = [
        (one, other)
        for (x, y, one), (to_x, to_y, other) in combinations(texts, 2)
        if abs(y - to_y) < diagrams.LINE - 1 and abs(x - to_x) < half[one] + half[other]
    ]
    assert over == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("pie title Pets", "begins with"),
        ("sequenceDiagram\n  participant a\n  a->>b: hello", "b is not introduced"),
        ("sequenceDiagram\n  participant a\n  loop for ever\n  a->>a: hello", "no end"),
        ("sequenceDiagram\n  participant a\n  a=>a: hello", "not a line"),
        ("flowchart LR\n  a --> b -->", "not a line"),
        ("flowchart LR\n  subgraph one\n  a", "no end"),
        ("stateDiagram-v2\n  a -> b", "not a line"),
    ],
)
def test_what_is_not_mermaid_is_an_error(source, problem):
    with pytest.raises(diagrams.DiagramError, match=problem):
        diagrams.draw(source, "")


@pytest.mark.parametrize("path", SOURCES)
def test_diagrams_use_the_names_of_the_code(path):
    """A step, an instruction, an annotation or a function that a picture names is there."""
    missing = []
    for word in set(NAMES.findall(path.read_text())) - FREE:
        there = (ROOT / "src" / "mooring" / word).is_dir() if word.startswith("core/") else word in program()
        if not there:
            missing.append(word)
    assert missing == []
