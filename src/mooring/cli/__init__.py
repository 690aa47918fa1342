"""The `mooring` command: one thin module per group, imported only when it is used.

Exit codes, of every command: 0 done · 1 the thing asked about is not as it should be · 2 bad usage or bad input ·
3 refused by a rule · 4 could not look. stdout carries data only; progress and logs go to stderr.
"""

import errno
import os
import re
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, Final, NoReturn

from cyclopts import App, CycloptsError, Parameter

import mooring
from mooring.cli.help import FlowingHelp, mistyped
from mooring.core.model.exits import Exit, UserError

#: Where a command lives that comes with the second distribution, `mooring-lab`: its entry point says.
LAB: Final = ""
#: name → where its app (or function) lives, and what it is for, in one line. Imported only when it is used.
GROUPS: Final[dict[str, tuple[str, str]]] = {
    "agent": ("mooring.cli.agent:agent", "Read one machine's interruption notices from its cloud."),
    "balance": ("mooring.cli.balance:app", "Balance regions and leaders of TiKV stores."),
    "blackbox": ("mooring.cli.blackbox:app", "Fetch the recording of a running Mooring."),
    "cleanup": ("mooring.cli.cleanup:app", "List or remove what Mooring has left in a cluster."),
    "completion": ("mooring.cli.completion:app", "Print a completion script for your shell."),
    "config": ("mooring.cli.config:app", "Show each setting, its value and its source."),
    "demo": (LAB, "Play one day on a sandbox cluster; no cluster needed."),
    "doctor": ("mooring.cli.doctor:app", "Check cluster, rights and the running Mooring."),
    "drain": ("mooring.cli.drain:app", "Empty nodes: leaders handed over, replacements first."),
    "fleet": ("mooring.cli.fleet:app", "Plan which machines make up the cluster."),
    "handoff": ("mooring.cli.handoff:app", "Show TiKV pods that hand over their leaders."),
    "home": ("mooring.cli.home:app", "Show which members are on their node."),
    "lab": (LAB, "Start and stop a real control plane on this machine."),
    "maintain": ("mooring.cli.maintain:app", "Empty nodes one by one and run a command for each."),
    "manifests": ("mooring.cli.manifests:app", "Print the Kubernetes objects that install Mooring."),
    "mix": ("mooring.cli.mix:app", "Show replicas across on-demand and spot nodes."),
    "page": ("mooring.cli.page:app", "Show several clusters on one page, a line each."),
    "pause": ("mooring.cli.pause:app", "Let nothing new begin, for a feature or for everything."),
    "queue": ("mooring.cli.queue:app", "List what runs and what waits, in order."),
    "rehearse": (LAB, "Play an event on a snapshot of a cluster."),
    "replay": ("mooring.cli.replay:app", "Replay a recording, and ask why at any moment."),
    "restart": ("mooring.cli.restart:app", "Restart pods safely, one after another."),
    "resume": ("mooring.cli.pause:resuming", "End a pause, of a feature or of everything."),
    "run": ("mooring.cli.run:app", "Run one replica of the control plane."),
    "sandbox": (LAB, "Start an embedded cluster that kubectl can use."),
    "sim": (LAB, "Play seeded days with faults and check every invariant."),
    "top": ("mooring.cli.top:app", "Watch queue, stores, nodes and racks in the terminal."),
    "why": ("mooring.cli.why:app", "Explain one object and say what to type."),
}


def _default(value: Any) -> str | None:
    """A default that says something: not that a flag is off, nor that a text is empty or not given."""
    return None if (value in ("", (), None, False, -1) and value != 0) or value is False else str(value)


#: No `--no-yes`, no `--empty-feature`, no `[default: -1]`.
PLAIN: Final = Parameter(negative=(), show_default=_default)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

#: Former names, kept for one release with a warning.
_FLEET: Final = re.compile(r"(get|set)-(template|constraints|variables|url|cluster)")
#: Commands whose `-f` was a file to write, and what it is called now.
WRITES: Final = {"rehearse snapshot": "--to", "rehearse import": "--to", "sandbox up": "--kubeconfig-file"}
FORMER: Final = {"traffic": "balance, or queue replay"}
HELP: Final = """Decides where machines, pods and data leaders of a Kubernetes cluster belong, and moves them safely.

Start with: mooring demo

On your cluster: mooring doctor --pre
"""


def lab_command(name: str) -> Any:
    """A command of mooring-lab; where that is not installed, one that says what to install."""
    try:
        return from_lab(name, name).value
    except UserError as missing:
        return _refusing(missing)


def from_lab(name: str, asked: str) -> EntryPoint:
    """The entry point by which mooring-lab offers this. Only here does `mooring` reach for its second distribution."""
    for found in entry_points(group="mooring.lab", name=name):
        return found
    raise UserError(f"mooring {asked} comes with mooring-lab, which is not installed: pip install 'mooring[lab]'")


def _refusing(why: UserError) -> Callable[..., None]:
    def refuse(*_: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> None:
        raise why

    refuse.__doc__ = str(why)
    return refuse


def make(*, described: bool = False) -> App:
    """The whole command. `described`: with a line per command, which would replace the commands' own help."""
    made = App(
        name="mooring",
        help=HELP,
        version=mooring.__version__,
        version_flags=["--version"],
        default_parameter=PLAIN,
        help_format="plaintext",
        help_formatter=FlowingHelp(),
    )
    for name, (where, words) in GROUPS.items():
        made.command(where or lab_command(name), name=name, help=words if described else None)
    former = App(
        name="traffic", help="Former name of `mooring balance` and of `mooring queue replay` and `migrate`.", show=False
    )
    for group, name in (("queue", "replay"), ("queue", "migrate"), ("balance", "release")):
        former.command(f"mooring.cli.{group}:{name}", name=name, help=f"Now mooring {group} {name}.")
    made.command(former)
    return made


app = make()


def main() -> NoReturn:
    """Run one command and leave by the exit codes of the contract: never a traceback for something a user can fix."""
    _reserve_streams()
    code: int = Exit.DONE
    try:
        code = _run()
        # Here rather than at the interpreter's end, where an error could no longer be reported.
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe: not an error.
        _abandon_stdout()
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        _abandon_stdout()  # help is printed by rich, which ends with 1 then
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _abandon_stdout()
        _say(f"{error.filename or 'stdout'}: {error.strerror}; the answer is not complete")
        code = Exit.USAGE
    sys.exit(code)


def _typed(words: list[str]) -> list[str]:
    """`mooring rehearse spot-gone`: an event where a command is expected is played. And `--from blackbox FILE`."""
    if (
        words[:1] == ["rehearse"]
        and "--from" in words
        and words[(at := words.index("--from")) + 1 :][:1] == ["blackbox"]
    ):
        words = [*words[: at + 1], *words[at + 2 :]]
    if (to := WRITES.get(" ".join(words[:2]))) and (flag := next((w for w in words if w in {"-f", "--file"}), "")):
        _say(f"`{flag}` is a file to read: use {to} for the one to write; it will no longer be taken for that")
        words = [to if word == flag else word for word in words]
    if len(words) > 1 and words[0] == "rehearse" and not words[1].startswith("-") and words[1] not in app["rehearse"]:
        return ["rehearse", "play", *words[1:]]
    if len(words) > 1 and words[0] == "fleet" and (old := _FLEET.fullmatch(words[1])):
        _say(f"`mooring fleet {old[0]}` is a former name and will be removed; use mooring fleet {old[1]} {old[2]}")
        return ["fleet", old[1], old[2], *words[2:]]
    return words


def _run() -> int:
    if len(sys.argv) > 1 and sys.argv[1] in FORMER:
        _say(f"`mooring {sys.argv[1]}` is a former name and will be removed; use mooring {FORMER[sys.argv[1]]}")
    asks_for_help = len(sys.argv) < 2 or sys.argv[1] in {"-h", "--help"}
    whole = make(described=True) if asks_for_help else app
    try:
        if (server := _server_alone(sys.argv[1:])) is not None and _overview(server):
            return Exit.DONE
        result = whole(_typed(sys.argv[1:]), exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        _say(mistyped(error, whole))
        return Exit.USAGE
    except UserError as error:
        _say(str(error))
        return error.code
    except KeyboardInterrupt:
        _say("stopped")
        return 130
    return result if isinstance(result, int) else Exit.DONE


def _server_alone(words: list[str]) -> str | None:
    """`mooring`, or `mooring --server URL`: no command, but perhaps whom to ask."""
    if not words:
        return ""
    name, equals, value = words[0].partition("=")
    return (value if equals else words[-1]) if name == "--server" and len(words) == 2 - bool(equals) else None


def _overview(server: str) -> bool:
    """`mooring` alone says how the cluster is, where one answers on loopback or at MOORING_SERVER. Else: the help."""
    from mooring.cli.server import Reach, ask
    from mooring.cli.why import overview

    try:
        head = ask(Reach(server), "/api/v1/frame", timeout_s=1.0, forward=False)["head"]
    except UserError:
        if server:
            raise
        return False
    overview(head)
    return True


def _reserve_streams() -> None:
    """Where the caller closed a stream, let what belongs there go nowhere: not into the next file that is opened."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123 - open as long as we are
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123


def _abandon_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str) -> None:
    """Wrapped where a person reads it; a script finds each sentence on one line. An error names `mooring`, no path."""
    from mooring.cli.output import note, print_text

    if sys.stderr.isatty():
        note(f"mooring: {message}", typed=False)
    else:
        print_text(f"mooring: {message}", stream=sys.stderr)
