"""Text of others on a terminal: what a recording, a file of events or a server says is shown, never obeyed."""

import json

import pytest

from mooring.cli.output import Format, Progress, note, painted, plain_values, print_lines, print_table, print_text
from mooring.cli.queue import replay as queue_replay
from mooring.cli.replay import replay
from mooring.core.model.exits import UserError
from tests.blackbox.environment import INCIDENTS

#: Clear the screen, set the title, write to the clipboard, hide; and the one-character form of ESC [.
EVIL = "\x1b[2J\x1b]0;title\x07\x1b]52;c;ZXZpbA==\x1b\\\x1b[8mhidden\x9b31m\r\x7f"


def obeyed(text: str) -> set[str]:
    return {c for c in text if not c.isprintable() and c != "\n"}


@pytest.mark.parametrize(
    "say",
    [print_text, note, lambda text: print_lines([text]), lambda text: print_table(["A", "B"], [[text, text]])],
)
def test_no_way_to_print_lets_control_characters_through(say, capsys):
    """M8: one printing function that cannot."""
    say(f"pod/{EVIL}")
    said = capsys.readouterr()
    assert "hidden" in said.out + said.err
    assert obeyed(said.out + said.err) == set()


def test_our_own_colours_stay(monkeypatch, capsys):
    """M8: the one thing that a terminal is to obey."""
    monkeypatch.setattr("mooring.cli.output.coloured", lambda stream=None: True)
    print_text(painted("web is blocked", "blocked") + EVIL)
    assert capsys.readouterr().out.startswith("web is \x1b[1;31mblocked\x1b[0m·[2J")


def test_frames_are_drawn_without(monkeypatch):
    """M8: `mooring top`, also of a recording."""
    assert obeyed(json.dumps(plain_values({"rows": [{"name": EVIL}], "n": 1}), ensure_ascii=False)) == set()


def test_the_header_of_a_recording_is_shown_only(tmp_path, capsys):
    """M8: the identity in the header of a recording that somebody sent."""
    head, _, rest = (INCIDENTS / "restart.blackbox").read_bytes().partition(b"\n")
    header = json.loads(head) | {"identity": EVIL, "mooring": EVIL}
    sent = tmp_path / "sent.blackbox"
    sent.write_bytes(json.dumps(header, sort_keys=True).encode() + b"\n" + rest)
    replay(str(sent))
    said = capsys.readouterr()
    assert "hidden" in said.out and obeyed(said.out + said.err) == set()


def test_the_ids_of_a_file_of_events_are_shown_only(tmp_path, capsys):
    """M8: `mooring queue replay -o table`."""
    events = tmp_path / "events.jsonl"
    events.write_text(json.dumps({"at": 1, "event": "submit", "id": EVIL, "scheduler": "s", "steps": []}) + "\n")
    queue_replay(events, output=Format.TABLE)
    said = capsys.readouterr()
    assert "hidden" in said.out + said.err and obeyed(said.out + said.err) == set()


def test_progress_is_one_line(monkeypatch, capsys):
    """M8: what a rehearsal does now is written over, and only that."""
    progress = Progress()
    progress._on = True
    progress.line(EVIL, stay=True)
    assert capsys.readouterr().err.startswith("\r\x1b[K·[2J")


def test_yaml_that_unfolds_without_end_is_refused(tmp_path):
    """Low: 453 bytes of aliases hung `mooring queue replay --config`."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    config = tmp_path / "config.yaml"
    config.write_text("\n".join(lines))
    (events := tmp_path / "events.jsonl").write_text("")
    with pytest.raises(UserError, match="unfold"):
        queue_replay(events, config=config)
