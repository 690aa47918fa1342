"""Marks are read from annotations, which anybody who may write the object may fill with anything."""

import pytest

from mooring.core.model.marks import read_mark, read_marks

DEEP = "[" * 3000 + "]" * 3000


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"step": 5}', '{"deadline": "x"}', f'{{"else": {DEEP}}}', DEEP])
def test_a_mark_that_cannot_be_read_is_none(text):
    """Nothing written on an object may stop the reader: not even brackets without end under a key nobody knows."""
    assert read_mark(text) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"p": 3}', f'{{"p": {{"else": {DEEP}}}}}'])
def test_marks_that_cannot_be_read_are_none(text):
    """E3: several in one annotation; not readable is not ours to touch."""
    assert read_marks(text) is None
