"""The pages of the capabilities are built alike."""

import re

import pytest

from tests.docs.test_docs import ROOT


@pytest.mark.parametrize("name", ["handoff", "mix", "home", "fleet", "balance"])
def test_a_page_of_a_capability_answers_six_questions(name):
    """What it is, when to use it, a picture, its settings, what can go wrong, what it does not do."""
    page = (ROOT / "docs" / f"{name}.md").read_text()
    assert re.match(rf"# {name.capitalize()}: .+\n\n\w.{{80,}}", page), "what it is, in a paragraph under its title"
    for part in (
        r"^\*\*When to use it:\*\* .+",
        r"^```mermaid$",
        r"^## Settings$",
        r"^## When something is wrong$",
        r"^## What it does not do$",
    ):
        assert re.search(part, page, re.MULTILINE), part
    assert "(settings.md)" in page
