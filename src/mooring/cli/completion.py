"""`mooring completion`: what a shell needs to complete our commands; and kubectl's way of asking the same."""

import sys
from typing import Annotated, Literal

from cyclopts import App, Parameter

app = App(name="completion", help="Print a completion script for your shell.")


@app.default
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="bash, zsh or fish.")],
) -> None:
    """Print the completion script; load it from your shell's start-up file.

    Example: mooring completion bash > ~/.local/share/bash-completion/completions/mooring
    Example: mooring completion zsh > ~/.zfunc/_mooring
    """
    from mooring.cli import app as whole

    print(whole.generate_completion(shell=shell))


def kubectl() -> None:
    """`kubectl_complete-mooring WORDS… LAST`: a candidate a line, then what the shell may add (4: no files)."""
    *before, last = sys.argv[1:] or [""]
    print("\n".join([*candidates(before, last), ":4"]))


def candidates(before: list[str], last: str) -> list[str]:
    """Commands and options that may stand here and begin with what was typed."""
    from mooring.cli import app as whole

    _, apps, _ = whole.parse_commands(before)
    found: set[str] = set()
    here = apps[-1]
    if last.startswith("-"):
        command = here.default_command
        if command is not None:
            found |= {name for a in here.assemble_argument_collection() for name in a.names if name.startswith("--")}
    else:
        found |= {name for name in here if not name.startswith("-")}
    return sorted(name for name in found if name.startswith(last))
