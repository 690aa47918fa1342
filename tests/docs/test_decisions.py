"""The decisions: few pages, numbered without gaps, each in the index; a line per dependency."""

import re
import tomllib

from tests.docs.test_docs import ROOT

DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted(DECISIONS.glob("[0-9]*.md"))


def test_decisions_are_few_and_numbered_without_gaps():
    """A reader finds a subject in one page: at most 15 of them, 0001 onwards, the number in the title too."""
    assert len(PAGES) <= 15
    assert [page.name[:4] for page in PAGES] == [f"{number:04d}" for number in range(1, len(PAGES) + 1)]
    assert [page.read_text()[:7] for page in PAGES] == [f"# {page.name[:4]} " for page in PAGES]


def test_the_index_has_every_decision_under_its_title():
    """The index names each page by the decision that its title states."""
    rows = re.findall(r"\[(\d{4})\]\(([^)]+)\) (.+) \|$", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    assert [(page.name[:4], page.name, page.read_text().splitlines()[0][7:]) for page in PAGES] == rows


def test_every_dependency_has_its_line():
    """What pyproject.toml asks for is explained, each by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    names = {re.match(r"[\w-]+", line)[0] for line in asked}
    explained = set(re.findall(r"[\w-]+", (DECISIONS / "0001-layers.md").read_text()))
    assert names - explained == set()
