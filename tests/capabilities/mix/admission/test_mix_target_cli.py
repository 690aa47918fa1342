"""`mooring mix target`, the contract that scripts rely on."""

import json

import pytest

from mooring.cli.mix import app
from mooring.core.model.exits import UserError


def ask(capsysbinary, *args):
    app(["target", *args, "-o", "json"], exit_on_error=False, print_error=False, result_action="return_value")
    return json.loads(capsysbinary.readouterr().out)


@pytest.mark.parametrize(
    ("args", "answer"),
    [
        (("--kind", "Deployment", "--replicas", "3"), ("all-in-spot", 0, 3, "sss")),
        (("--kind", "StatefulSet", "--replicas", "1"), ("majority-in-on-demand", 1, 0, "O")),
        (("--kind", "StatefulSet", "--replicas", "5"), ("majority-in-on-demand", 3, 2, "OOsOs")),
        (("--kind", "StatefulSet", "--replicas", "0"), ("majority-in-on-demand", 0, 0, "")),
        (("--kind", "Deployment", "--replicas", "4", "--mode", "all-in-on-demand"), ("all-in-on-demand", 4, 0, "OOOO")),
        (
            ("--kind", "Deployment", "--replicas", "10", "--mode", "custom", "--custom", "30%"),
            ("custom", 3, 7, "OssOssOsss"),
        ),
        (
            ("--kind", "Deployment", "--replicas", "7", "--mode", "custom", "--custom", "30pct"),
            ("custom", 3, 4, "OssOssO"),
        ),
        (("--kind", "StatefulSet", "--replicas", "2", "--mode", "custom", "--custom", "3"), ("custom", 2, 0, "OO")),
    ],
)
def test_targets(capsysbinary, args, answer):
    """M1, M2: mode, counts and the class of each slot, for defaults, counts and percentages."""
    found = ask(capsysbinary, *args)
    assert (found["mode"], found["on_demand"], found["spot"], found["sequence"]) == answer


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--kind", "Job", "--replicas", "3"), "one of Deployment, StatefulSet"),
        (("--kind", "Deployment", "--replicas", "-1"), "between 0 and"),
        (("--kind", "Deployment", "--replicas", "3", "--mode", "most"), "all-in-on-demand, all-in-spot"),
        (("--kind", "Deployment", "--replicas", "3", "--mode", "custom"), "needs --custom"),
        (("--kind", "Deployment", "--replicas", "3", "--mode", "custom", "--custom", "120%"), "0% to 100%"),
        (("--kind", "Deployment", "--replicas", "3", "--custom", "3"), "goes with --mode custom"),
    ],
)
def test_bad_input_is_told_in_words(args, says):
    """What is wrong and what would be right, exit code 2."""
    with pytest.raises(UserError, match=says) as error:
        app(["target", *args], exit_on_error=False, print_error=False, result_action="return_value")
    assert error.value.code == 2
