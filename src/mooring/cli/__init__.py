"""The `mooring` command: one thin module per group, imported only when it is used.

Exit codes, of every command: 0 done · 1 the thing asked about is not as it should be · 2 bad usage or bad input ·
3 refused by a rule · 4 could not look. stdout carries data only; progress and logs go to stderr.
"""

import os
import sys
from typing import Final, NoReturn

from cyclopts import App, CycloptsError

import mooring
from mooring.cli.exits import CommandError, Exit

#: name → where its app (or function) lives. A group appears here when its capability lands.
GROUPS: Final[dict[str, str]] = {
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
    "top": "mooring.cli.top:app",
    "traffic": "mooring.cli.traffic:app",
    "why": "mooring.cli.why:app",
}

app = App(
    name="mooring",
    help="Says where machines, pods and data leaders belong, and moves them gently when they must move.",
    version=mooring.__version__,
    version_flags=["--version"],
)
for _name, _where in GROUPS.items():
    app.command(_where, name=_name)


def main() -> NoReturn:
    """Run one command and leave by the exit codes of the contract: never a traceback for something a user can mend."""
    try:
        result = app(exit_on_error=False, print_error=False)
    except CycloptsError as error:
        _say(str(error))
        sys.exit(Exit.USAGE)
    except CommandError as error:
        _say(str(error))
        sys.exit(error.code)
    except KeyboardInterrupt:
        _say("stopped")
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) has left; nothing of ours is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.DONE)
    sys.exit(result if isinstance(result, int) else Exit.DONE)


def _say(message: str) -> None:
    print(f"mooring: {message}", file=sys.stderr)
