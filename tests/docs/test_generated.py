"""What the docs take from the code is up to date; the glossary has every word; every promise has its sentence."""

import json
import re

import pytest

from docs import generate
from tests.docs.test_docs import FENCE, ROOT

AGAIN = "run: .venv/bin/python -m docs.generate"


def test_settings_are_those_of_the_code():
    """docs/settings.md has every setting with its default, and each says what it means."""
    assert all(meaning for *_, meaning in generate.rows(generate.Config()))
    assert (ROOT / "docs" / "settings.md").read_text() == generate.settings_page(), AGAIN


def test_promises_are_those_that_tests_name():
    """docs/promises.md names for each promise the tests that show it."""
    assert (ROOT / "docs" / "promises.md").read_text() == generate.promises_page(), AGAIN


def test_the_schema_is_that_of_the_answers():
    """docs/api.schema.json has every field of `mooring why -o json` and of the page's rows."""
    text = (ROOT / "docs" / "api.schema.json").read_text()
    assert text == generate.schema(), AGAIN
    fields = json.loads(text)["$defs"]["Explanation"]["properties"]
    assert {"state", "reason", "answer", "lines", "history"} <= fields.keys()


def test_every_promise_that_the_demo_checks_has_its_sentence():
    """The table at the end of the demo prints ids: each is explained."""
    assert generate.demo_acts().keys() - generate.PROMISES.keys() == set()


@pytest.mark.timeout(400)
def test_the_readme_shows_what_the_demo_prints():
    """The sample in README.md is today's output of `make demo`, figures included."""
    shown = next(block for block in FENCE.findall((ROOT / "README.md").read_text()) if block.startswith("$ make demo"))
    assert shown == generate.sample(generate.played()), f"{AGAIN} --sample"


#: The words for users and what each replaces. One word, one meaning: code, CLI, page, metrics, Events, docs.
WORDS = (
    ("stable", "placed"),
    ("moving", ""),
    ("waiting", "waits"),
    ("blocked", "held"),
    ("refused", ""),
    ("kept", "held"),
    ("broken", ""),
    ("reservation", "seat"),
    ("used by", "held by"),
    ("request", "wish"),
    ("interruption notice", "two minutes"),
    ("interrupted node", "doomed"),
    ("leftovers", "left behind"),
    ("no pending changes", "nothing waits"),
    ("not found", "nothing is known"),
)


@pytest.mark.parametrize("word", [word for word, _ in WORDS])
def test_the_glossary_explains_every_word_for_users(word):
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    terms = {term.strip(" `"): text.strip() for term, text in rows}
    assert terms.get(word), f"docs/glossary.md does not explain {word!r}"
