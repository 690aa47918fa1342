"""`mooring queue` and `mooring balance` as a user types it: data on stdout, words on stderr, the contract's exit codes."""

import json

import pytest

from mooring.cli import app
from mooring.core.model.exits import Exit, UserError
from tests.program import mooring

SUBMIT = {
    "at": 0,
    "do": "submit",
    "operator": {
        "id": "a",
        "scheduler": "s",
        "regions": [1],
        "leader": 1,
        "peers": [1],
        "steps": [{"kind": "AddPeer", "store": 2}],
    },
}


def test_replay_reads_a_file_and_goes_on_after_garbage(tmp_path):
    """One object a line out; garbage is told on stderr with its place; exit 0."""
    events, config = tmp_path / "events.jsonl", tmp_path / "limits.yml"
    events.write_text(f"{json.dumps(SUBMIT)}\n\nrubbish\n" + json.dumps({"at": 1, "do": "finish", "id": "a"}))
    config.write_text("MaxScheduleCost: null\nStoreMaxScheduleCost:\n  2: 8\n")
    done = mooring("queue", "replay", events, "--config", config)
    assert done.returncode == 0
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()] == [
        "accepted",
        "promoted",
        "ignored",
        "finished",
    ]
    assert "events.jsonl:3:" in done.stderr


def test_replay_reads_stdin():
    """`-` is stdin, so that a recording can be piped."""
    assert mooring("queue", "replay", "-", stdin=json.dumps(SUBMIT)).stdout.count("\n") == 2


def test_replay_for_people(tmp_path, capfdbinary):
    """`-o table` says the same in words, with the sum that keeps an operator waiting."""
    events = tmp_path / "events.jsonl"
    again = {**SUBMIT, "operator": {**SUBMIT["operator"], "id": "b", "regions": [2]}}
    third = {**SUBMIT, "operator": {**SUBMIT["operator"], "id": "c", "regions": [3]}}
    lines = [SUBMIT, again, third, {"at": 1, "do": "state"}, {"at": 2, "do": "cancel", "id": "x"}]
    events.write_text("\n".join(map(json.dumps, lines)))
    app(["queue", "replay", str(events), "-o", "table"], result_action="return_value")
    said = capfdbinary.readouterr().out.decode().splitlines()
    assert said[-3:] == [
        "         1  state     2 run, 1 wait",
        "            c waits for store 2: needs 8 · used 16 · reserved 0 · limit 20; behind a, b",
        "         2  ignored   x  unknown",
    ]


@pytest.mark.parametrize(
    "config", ["MaxScheduleCost: -3", "Colour: red", "[", "- 1", "{", "[" * 100_000, "a: " + "9" * 5000]
)
def test_a_bad_config_file_is_refused(tmp_path, config):
    """Exit 2, naming the file and what would be right."""
    path = tmp_path / "limits.yml"
    path.write_text(config)
    with pytest.raises(UserError, match=r"limits\.yml") as refused:
        app(["queue", "replay", "-", "--config", str(path)], exit_on_error=False, print_error=False)
    assert refused.value.code == Exit.USAGE


def test_a_file_that_is_not_there():
    """Exit 2, naming it."""
    done = mooring("queue", "replay", "/no/such/file")
    assert done.returncode == 2
    assert "/no/such/file" in done.stderr
    assert "Traceback" not in done.stderr


def test_migrate_output_feeds_replay(tmp_path):
    """What `migrate -o json` prints under `config` is a configuration that `replay` takes."""
    old, new = tmp_path / "pd.json", tmp_path / "new.json"
    old.write_text(json.dumps({"schedule": {"leader-schedule-limit": 4, "store-limit": {"1": {"add-peer": 15}}}}))
    answer = json.loads(mooring("queue", "migrate", old, "-o", "json").stdout)
    assert set(answer) == {"config", "reasons", "dropped", "warnings"}
    assert answer["config"].keys() == answer["reasons"].keys()
    new.write_text(json.dumps(answer["config"]))
    assert mooring("queue", "replay", "-", "--config", new, stdin=json.dumps(SUBMIT)).returncode == 0
    assert "MaxScheduleCost" in mooring("queue", "migrate", old).stdout


def test_migrate_refuses_what_is_no_configuration(tmp_path):
    """Exit 2 when the file has none of the old limits."""
    path = tmp_path / "pd.json"
    path.write_text("{}")
    done = mooring("queue", "migrate", path)
    assert done.returncode == 2
    assert "leader-schedule-limit" in done.stderr


def test_the_former_name_still_works_and_says_so():
    """`mooring traffic replay` is understood for one release; the warning names the new command."""
    done = mooring("traffic", "replay", "-", stdin=json.dumps(SUBMIT))
    assert done.returncode == 0 and done.stdout.count("\n") == 2
    assert "use mooring balance, or queue replay" in done.stderr
