"""The `mooring` command: one thin module per group, imported only when it is used.

Exit codes, of every command: 0 done · 1 the thing asked about is not as it should be · 2 bad usage or bad input ·
3 refused by a rule · 4 could not look. stdout carries data only; progress and logs go to stderr.
"""

import errno
import os
import sys
from typing import Final, NoReturn

from cyclopts import App, CycloptsError

import mooring
from mooring.cli.exits import CommandError, Exit

#: name → where its app (or function) lives. A group appears here when its capability lands.
GROUPS: Final[dict[str, str]] = {
    "balance": "mooring.cli.balance:app",
    "cleanup": "mooring.cli.cleanup:app",
    "completion": "mooring.cli.completion:app",
    "demo": "mooring.cli.demo:app",
    "doctor": "mooring.cli.doctor:app",
    "fleet": "mooring.cli.fleet:app",
    "handoff": "mooring.cli.handoff:app",
    "home": "mooring.cli.home:app",
    "lab": "mooring.cli.lab:app",
    "manifests": "mooring.cli.manifests:app",
    "mix": "mooring.cli.mix:app",
    "queue": "mooring.cli.queue:app",
    "rehearse": "mooring.cli.rehearse:app",
    "run": "mooring.cli.run:app",
    "sim": "mooring.cli.sim:app",
    "top": "mooring.cli.top:app",
    "why": "mooring.cli.why:app",
}

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

app = App(
    name="mooring",
    help="Says where machines, pods and data leaders belong, and moves them gently when they must move.",
    version=mooring.__version__,
    version_flags=["--version"],
)
for _name, _where in GROUPS.items():
    app.command(_where, name=_name)
#: Former names, kept for one release with a warning.
FORMER: Final = {"traffic": "balance, or queue replay"}
app.command("mooring.cli.traffic:app", name="traffic", show=False)


def main() -> NoReturn:
    """Run one command and leave by the exit codes of the contract: never a traceback for something a user can mend."""
    _reserve_streams()
    code: int = Exit.DONE
    try:
        code = _run()
        # Here rather than at the interpreter's end, where nobody could answer for what goes wrong.
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has left; nothing of ours is wrong.
        _abandon_stdout()
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _abandon_stdout()
        _say(f"{error.filename or 'stdout'}: {error.strerror}; the answer is not complete")
        code = Exit.USAGE
    sys.exit(code)


def _run() -> int:
    if len(sys.argv) > 1 and sys.argv[1] in FORMER:
        _say(f"`mooring {sys.argv[1]}` is a former name and will be removed; use mooring {FORMER[sys.argv[1]]}")
    try:
        result = app(exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        _say(str(error))
        return Exit.USAGE
    except CommandError as error:
        _say(str(error))
        return error.code
    except KeyboardInterrupt:
        _say("stopped")
        return 130
    return result if isinstance(result, int) else Exit.DONE


def _reserve_streams() -> None:
    """Where the caller closed a stream, let what belongs there go nowhere: not into the next file that is opened."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123 - open as long as we are
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123


def _abandon_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str) -> None:
    print(f"mooring: {message}", file=sys.stderr)
