"""`mooring doctor` as a script and a person meet it: waiting, shortness, JSON, exit codes."""

import json

import pytest

from mooring.cli import doctor as command
from mooring.cli.doctor import doctor
from mooring.cli.output import Format
from mooring.core.model.exits import Exit
from mooring.core.model.finding import ill, skipped, well

WELL = well("cluster", "fine")
WARNS = ill("cluster", "MO103", "clocks agree", "they do not", "timedatectl", warning=True)
FAILS = ill("mooring", "MO302", "lease", "nobody holds it", "kubectl get pods")


@pytest.fixture
def looks(monkeypatch):
    """Answers of the examinations to come, the last one for ever; and how many there were."""

    def script(*answers):
        made = []

        async def examine(*_):
            made.append(answers[min(len(made), len(answers) - 1)])
            return made[-1]

        monkeypatch.setattr(command, "_examine", examine)
        monkeypatch.setattr(command.time, "sleep", lambda _: None)
        return made

    return script


@pytest.mark.parametrize(
    ("findings", "strict", "code"),
    [
        ([WELL], False, Exit.DONE),
        ([WELL, skipped("pd", "pd", "no")], True, Exit.DONE),
        ([WELL, WARNS], False, Exit.DONE),
        ([WELL, WARNS], True, Exit.CHECK_FAILED),
        ([WELL, FAILS], False, Exit.CHECK_FAILED),
        ([ill("cluster", "MO101", "API server answers", "refused", "kubectl version")], False, Exit.UNREACHABLE),
    ],
)
def test_exit_codes(looks, findings, strict, code):
    """0 well, 1 a finding, 4 could not look; a warning fails only with --strict."""
    looks(findings)
    assert doctor(strict=strict) == code


def test_waiting_looks_again_until_all_is_well(looks, capsys):
    """--wait: as long as something fails, it looks again; what it waits for is told beside the answer, not in it."""
    made = looks([FAILS], [FAILS], [WELL])
    assert doctor(wait=60, output=Format.JSON) == Exit.DONE
    assert len(made) == 3
    told = capsys.readouterr()
    assert json.loads(told.out)["well"] is True
    assert "MO302" in told.err


def test_without_waiting_it_looks_once(looks):
    """The first answer is the answer."""
    made = looks([FAILS], [WELL])
    assert doctor() == Exit.CHECK_FAILED
    assert len(made) == 1


def test_json_has_every_finding_whole(looks, capsys):
    """-o json: the same findings, with group, level, code, what was seen and the fix."""
    looks([WELL, WARNS, FAILS])
    assert doctor(output=Format.JSON) == Exit.CHECK_FAILED
    whole = json.loads(capsys.readouterr().out)
    assert whole["well"] is False
    assert [(f["level"], f["code"]) for f in whole["findings"]] == [
        ("ok", ""),
        ("warning", "MO103"),
        ("error", "MO302"),
    ]
    assert set(whole["findings"][2]) == {"group", "level", "what", "code", "seen", "fix"}


def test_settings_that_are_not_valid_are_a_finding(capsys):
    """MO801: the doctor does not fall over what it should report."""
    assert doctor(features="mixx=true", output=Format.JSON) == Exit.CHECK_FAILED
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert found["code"] == "MO801" and "mixx" in found["seen"]
