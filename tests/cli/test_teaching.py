"""What a command says to somebody who asked for the wrong thing, or for nothing."""

import re

import pytest

from mooring.cli import _typed, app
from mooring.core.engine.why.names import spelled_out
from mooring.core.model.exits import Exit, UserError


def refusal(*args: str) -> UserError:
    with pytest.raises(UserError) as raised:
        app(args, exit_on_error=False, print_error=False)
    return raised.value


def test_why_of_no_object_shows_what_one_looks_like():
    """Bad usage (2); each subject that the sentence shows is one that could be asked about."""
    told = refusal("why", "-n", "tidb")
    assert told.code is Exit.USAGE
    shown = re.findall(r"(\w+/[\w/-]+)(?: -n (\w+))?", str(told).replace("KIND/NAME", ""))
    assert len(shown) == 8
    kinds = {spelled_out(subject, namespace or "default").partition("/")[0] for subject, namespace in shown}
    assert kinds == {"pod", "node", "workload", "operator", "store", "cluster", "machine", "rack"}


@pytest.mark.parametrize("more", ["--keep", "--open"])
def test_a_short_demo_has_no_page_to_keep(more):
    """--short plays without a page: together with what is about the page it is refused (2), before anything starts."""
    told = refusal("demo", "--short", more)
    assert told.code is Exit.USAGE
    assert "leave it out" in str(told)


def test_an_event_alone_is_played():
    """`mooring rehearse spot-gone` without `play`; commands and flags stay what they are."""
    assert _typed(["rehearse", "spot-gone", "--demo"]) == ["rehearse", "play", "spot-gone", "--demo"]
    for typed in (["rehearse", "play", "spot-gone"], ["rehearse", "snapshot"], ["rehearse", "--help"], ["rehearse"]):
        assert _typed(typed) == typed
