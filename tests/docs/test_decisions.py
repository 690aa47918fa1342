"""The decisions: one page, a title per decision, a line per dependency."""

import re
import tomllib

from tests.docs.test_docs import ROOT

PAGE = (ROOT / "docs" / "decisions.md").read_text()


def test_every_decision_is_stated_once():
    """A paragraph begins with the decision in bold, and no two say the same."""
    stated = re.findall(r"^\*\*([^*]+)\*\*", PAGE, re.MULTILINE)
    assert len(stated) > 30
    assert len(stated) == len(set(stated))


def test_every_dependency_has_its_line():
    """What pyproject.toml asks for is explained, each by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    names = {re.match(r"[\w-]+", line)[0] for line in asked}
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", PAGE.partition("### Dependencies")[2], re.MULTILINE)
    assert names - set(re.findall(r"[\w-]+", " ".join(rows))) == set()
