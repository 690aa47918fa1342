"""Plain words, in the docs and in the code: one word for one thing, no persons where there is a client or a user."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_docs import ROOT

SRC = ROOT / "src" / "mooring"
#: Words with a plain one in their place: the glossary's, or Kubernetes' own.
REPLACED = {
    r"seats?": "reservation",
    r"doomed": "interrupted",
    r"wish(?:es)?": "request",
    r"gently": "in order",
    r"anew": "again, recreated",
    r"believe[sd]?": "count, know",
    r"mend(?:s|ed|ing)?": "fix",
    r"nobody|no one": "no client, no user, nothing",
    r"some(?:body|one)": "a person, another client",
    r"any(?:body|one)": "any user, any client",
    r"every(?:body|one)": "all",
    r"who(?:m)?ever": "the one that",
    r"is wanted(?=,? (?:not|here|there|e\.g\.)|[\"'])": "must be, is required",
    r"come[s]? to rest": "ends",
    r"costs? time,? (?:and )?never truth": "delays a decision, never makes it wrong",
    r"tight circle|in a circle": "loop",
    r"in vain": "without effect",
    r"befalls?|befell": "happens to, faults",
    r"by lot|rolls? dice": "at random",
    r"culprit": "cause",
    r"vouch(?:es|ed)?": "issue",
    r"farewell": "shutdown",
    r"all is well": "there is none",
    r"fell over|falls over": "crashed",
}
#: `everybody` is a setting of mix, and a heading may quote what was replaced.
ALLOWED = re.compile(r"everybody: (?:\w|\")|`everybody`|interruption\.everybody|\.everybody\b|\.everybody:")
OLD = re.compile(rf"(?<![\w-])(?:{'|'.join(REPLACED)})\b", re.IGNORECASE)


def texts() -> Iterator[Path]:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        if page.name not in {"CHANGELOG.md", "glossary.md"}:
            yield page
    for suffix in ("py", "js", "html", "css"):
        yield from SRC.rglob(f"*.{suffix}")
    yield from (path for path in (ROOT / "deploy").rglob("*") if path.suffix in {".yaml", ".tpl", ".json"})


def plainer(word: str) -> str:
    return next(plain for old, plain in REPLACED.items() if re.match(old, word, re.IGNORECASE))


@pytest.mark.parametrize("part", ["docs", "deploy", *sorted(path.name for path in SRC.iterdir() if path.is_dir())])
def test_no_word_that_was_replaced_comes_back(part):
    """Docs, messages, docstrings and comments use the words of the glossary and of Kubernetes."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word[0]} (better: {plainer(word[0])}): {line.strip()[:100]}"
        for path in sorted(texts())
        if (SRC / part in path.parents if (SRC / part).is_dir() else SRC not in path.parents)
        and (part != "deploy" or ROOT / "deploy" in path.parents)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for word in OLD.finditer(ALLOWED.sub("", line))
    ]
    assert found == []


@pytest.mark.parametrize("name", ["handoff", "mix", "home", "fleet", "balance"])
def test_a_page_of_a_capability_answers_six_questions(name):
    """What it is, when to use it, a picture, its settings, what can go wrong, what it does not do."""
    page = (ROOT / "docs" / f"{name}.md").read_text()
    assert re.match(rf"# {name.capitalize()}: .+\n\n\w.{{80,}}", page), "what it is, in a paragraph under its title"
    for part in (
        r"^\*\*When to use it:\*\* .+",
        r"^!\[.+\]\(images/diagrams/[\w-]+\.svg\)$",
        r"^## Settings$",
        r"^## When something is wrong$",
        r"^## What it does not do$",
    ):
        assert re.search(part, page, re.MULTILINE), part
    assert "(settings.md)" in page
