"""60 columns: text wraps at words, commands stay whole on a line of their own; colours on terminals only."""

import os
import pty
import subprocess
import sys

import pytest

from mooring.cli.output import print_lines, print_table
from mooring.core.engine.why.words import COMMAND, fold, render
from mooring.process.terminal.queue import block
from mooring.process.terminal.wrap import continued, folded
from tests.core.why.situations_by_kind import play_all


@pytest.fixture(scope="module")
def answers():
    return [value for said in play_all().values() for _, _, value in said if value is not None]


def test_why_fits_60_columns_and_breaks_no_command(answers):
    """Every golden answer: each line fits, or is one word or one whole command."""
    for answer in answers:
        whole = render(answer)
        commands = {line[found.start() :] for line in whole if (found := COMMAND.search(line))}
        shown = render(answer, width=60)
        for line in shown:
            assert len(line) <= 60 or COMMAND.search(line) or " " not in line.strip(), line
        assert commands <= {line.strip() for line in shown} | {c for c in commands if any(c in line for line in shown)}
        assert "".join("".join(shown).split()) == "".join("".join(whole).split())


def test_what_is_labelled_goes_on_under_its_text():
    """The label stands once; the rest is under the text."""
    assert fold("now         node n1, rack 2, spot · Ready for 1:30 · store 1 Up · 80 leaders", 50) == [
        "now         node n1, rack 2, spot · Ready for 1:30",
        "            · store 1 Up · 80 leaders",
    ]


def test_a_row_of_the_queue_is_a_block_on_a_narrow_terminal():
    """Ten columns do not fit 60; what there is to say stands label by label."""
    row = ("○ waiting", "44", "balance", "region 7", "–", "store/tidb/demo/4 18/20", "6 of 8", "op 41", "0:12", "–")
    head, said = block(row, 60)
    assert head == ["○ waiting  op 44  region 7"]
    assert said == [
        "waiting for store/tidb/demo/4 18/20",
        "missing     6 of 8",
        "used by     op 41",
        "since       0:12",
    ]


def test_a_command_in_a_remark_is_never_broken():
    """What is to be typed stands whole on a line of its own; the sentence around it wraps at words."""
    typed = """kubectl -n tidb patch tc demo --type merge -p '{"spec":{"tikv":{"replicas":4}}}'"""
    assert folded(f"6/7 10:05  a TiKV store is added    $ {typed}", 60, " " * 11) == [
        "6/7 10:05  a TiKV store is added",
        f"           $ {typed}",
    ]
    assert folded("52 s. Leftovers: none.  Play: mooring demo --keep   On a real one: mooring demo --on lab", 60) == [
        "52 s. Leftovers: none.  Play:",
        "  mooring demo --keep",
        "On a real one: mooring demo --on lab",
    ]


def test_a_command_longer_than_a_line_goes_on_as_a_shell_reads_it():
    """A terminal would break it inside a word; what is in quotes is one word."""
    typed = """  $ kubectl -n tidb patch tc demo --type merge -p '{"a": "b c"}' --dry-run=server"""
    lines = continued(typed, 50)
    assert lines == [
        "  $ kubectl -n tidb patch tc demo --type merge \\",
        """    -p '{"a": "b c"}' --dry-run=server""",
    ]


ROWS = [("waiting", "shop", "Deployment/api", "4 spot pods of api on on-demand nodes; they return from 512 s on")]


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        ("", ["STATE    NAMESPACE  WORKLOAD        WRONG", "waiting  shop       Deployment/api  " + ROWS[0][3]]),
        (
            "70",
            [
                "STATE    NAMESPACE  WORKLOAD        WRONG",
                "waiting  shop       Deployment/api  4 spot pods of api on on-demand",
                "                                    nodes; they return from 512 s on",
            ],
        ),
        (
            "50",
            [
                "state      waiting",
                "namespace  shop",
                "workload   Deployment/api",
                "wrong      4 spot pods of api on on-demand nodes;",
                "           they return from 512 s on",
                "",
            ],
        ),
    ],
)
def test_a_table_wraps_its_last_column_or_becomes_blocks(columns, lines, monkeypatch, capsys):
    """No cell is broken inside a word; into a pipe a row is one line."""
    monkeypatch.setenv("COLUMNS", columns)
    print_table(("STATE", "NAMESPACE", "WORKLOAD", "WRONG"), ROWS)
    assert capsys.readouterr().out.splitlines() == lines


CODE = "from mooring.cli.output import painted; print(painted('web is blocked: x', 'blocked'))"


def on_a_terminal(**environment: str) -> str:
    parent, child = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "TERM"}}
    with subprocess.Popen([sys.executable, "-c", CODE], stdout=child, env={**kept, **environment}) as process:
        process.wait(30)
    os.close(child)
    return os.read(parent, 1000).decode()


def test_colours_are_for_terminals_only():
    """A pipe, NO_COLOR and TERM=dumb get plain text."""
    assert "\x1b[1;31mblocked\x1b[0m" in on_a_terminal(TERM="xterm")
    assert "\x1b" not in on_a_terminal(TERM="dumb")
    assert "\x1b" not in on_a_terminal(TERM="xterm", NO_COLOR="1")
    piped = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert piped.stdout == "web is blocked: x\n"


def test_text_is_wrapped_under_its_label(monkeypatch, capsys):
    """60 columns: a finding, a bullet or a labelled line goes on under its text; its command stays whole."""
    monkeypatch.setenv("COLUMNS", "40")
    fix = "      fix    kubectl create namespace mooring-system --dry-run=server"
    print_lines(
        [
            f"  × error [MO201]\n      seen   it does not exist: no replica has ever led\n{fix}",
            "",
            "- one two three " * 3,
        ]
    )
    assert capsys.readouterr().out.splitlines() == [
        "  × error [MO201]",
        "      seen   it does not exist: no",
        "             replica has ever led",
        fix,
        "",
        "- one two three - one two three - one",
        "  two three",
    ]
    monkeypatch.delenv("COLUMNS")
    print_lines(["x " * 90])
    assert len(capsys.readouterr().out.splitlines()) == 1
