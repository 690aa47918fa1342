"""Help: a line per command, examples that work as typed, a description for every flag. The test walks them all."""

import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest
from cyclopts import App

from mooring.cli import GROUPS, app, make

EXAMPLE = re.compile(r"(?m)^Example: (.+)$")


def walk(here: App, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    """Every command that can be typed and shows in help."""
    for name in here:
        one = here[name]
        if name.startswith("-") or not one.show:
            continue
        yield (*path, name), one
        yield from walk(one, (*path, name))


EVERY = dict(walk(app))
LEAVES = {path: one for path, one in EVERY.items() if one.default_command is not None}


def words(path: tuple[str, ...]) -> str:
    return " ".join(path)


@pytest.mark.parametrize("path", EVERY, ids=words)
def test_every_command_says_in_one_line_what_it_does(path):
    """The first line of its help is a sentence, and the root's list has a short one."""
    first = (EVERY[path].help or "").strip().split("\n\n")[0]
    assert first and first.rstrip().endswith((".", "?")), first
    if len(path) == 1:
        assert 20 <= len(GROUPS[path[0]][1]) <= 62


def test_the_first_page_of_help_describes_every_command(capsys):
    """`mooring --help`: one line per command, none without a description."""
    make(described=True)(["--help"], result_action="return_value")
    shown = capsys.readouterr().out
    for name, (_, said) in GROUPS.items():
        assert re.search(rf"{name} +{re.escape(said)}", shown), name


def test_former_names_say_what_they_are_called_now(capsys):
    """`mooring traffic --help`, for as long as it is there."""
    app(["traffic", "--help"], result_action="return_value")
    shown = capsys.readouterr().out
    assert re.findall(r"Now mooring (\w+ \w+)\.", shown) == [*("queue migrate", "balance release", "queue replay")]


@pytest.mark.parametrize("path", LEAVES, ids=words)
def test_every_command_shows_examples_that_parse(path):
    """Two or three, each as it would be typed; flags and values are those that the command takes."""
    shown = EXAMPLE.findall(re.sub(r"(?m)^ +", "", LEAVES[path].help or ""))
    assert 2 <= len(shown) <= 3, shown
    for example in shown:
        assert "mooring " in example
        for command in re.split(r"\s*(?:&&|\|)\s*", example):
            typed = shlex.split(command.partition(" > ")[0].partition(" < ")[0])
            if typed[0] != "mooring":
                continue
            _, _, rest = app.parse_commands(typed[1:])
            assert tuple(typed[1 : len(typed) - len(rest)]) == path, example
            app.parse_args(typed[1:], exit_on_error=False, print_error=False)


@pytest.mark.parametrize("path", LEAVES, ids=words)
def test_every_flag_is_described(path):
    """No flag and no argument without a description."""
    for argument in LEAVES[path].assemble_argument_collection(parse_docstring=True):
        if not argument.show:
            continue
        assert argument.parameter.help, argument.names


@pytest.mark.parametrize("path", LEAVES, ids=words)
def test_the_way_to_a_cluster_is_the_same_everywhere(path):
    """Whatever takes one of --kubeconfig, --context and --mooring-namespace takes all of them; -n is the object's."""
    names = {name for one in LEAVES[path].assemble_argument_collection(parse_docstring=True) for name in one.names}
    for one in LEAVES[path].assemble_argument_collection(parse_docstring=True):
        assert not {"-n", "--mooring-namespace"} <= set(one.names), "-n is the namespace of an object"
        assert "-f" not in one.names or "write" not in one.parameter.help, "-f is a file to read"
    if names & {"--kubeconfig", "--context"}:
        assert {"--kubeconfig", "--context"} <= names
        assert {"--mooring-namespace", "-n"} & names


@pytest.mark.parametrize("path", LEAVES, ids=words)
def test_no_default_is_shown_that_says_nothing(path, capsys):
    """`[default: -1]`, `[default: ""]` tell nobody anything; nor do `--no-yes` and `--empty-feature`."""
    app([*path, "--help"], result_action="return_value")
    shown = capsys.readouterr().out
    for silly in ("-1]", '""]', "()]", "None]", "False]", "Where("):
        assert f"default: {silly}" not in shown
    assert "--no-" not in shown.replace("--no-wait", "")  # the contract's
    assert "--empty-" not in shown


@pytest.mark.parametrize("path", LEAVES, ids=words)
def test_paragraphs_flow_and_examples_stay_whole(path, capsys, monkeypatch):
    """At 60 columns a line is full before the next begins, and what is to be typed can be copied as one line."""
    monkeypatch.setenv("COLUMNS", "60")
    make()([*path, "--help"], result_action="return_value")
    shown = capsys.readouterr().out.partition("╭")[0]
    for paragraph in shown.split("\n\n")[1:]:
        lines = paragraph.strip("\n").split("\n")
        if lines[0].startswith("Example: "):
            assert len(lines) == 1, paragraph
            continue
        for line, following in itertools.pairwise(lines):
            assert len(line.rstrip()) <= 60 < len(line.rstrip()) + 1 + len(following.split()[0]), paragraph


def test_help_loads_no_more_than_it_needs():
    """Startup stays below 0.3 s of CPU: nothing that a server, the sandbox or YAML needs is loaded to print help."""
    code = (
        "import sys, io, contextlib; sys.argv = ['mooring', '--help']\n"
        "from mooring.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main()\n"
        "print(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    heavy = {"aiohttp", "asyncio", "ssl", "yaml", "structlog", "cryptography", "mooring_lab.cluster", "mooring.process"}
    assert loaded & heavy == set()
    assert len(loaded) < 350
