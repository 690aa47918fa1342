"""`mooring completion`: what a shell needs to complete our commands; and kubectl's way of asking the same."""

import sys
from typing import Annotated, Literal

from cyclopts import App, Parameter

from mooring.cli.output import print_text

app = App(name="completion")


@app.default
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="bash, zsh or fish.")],
) -> None:
    """Print the completion script; load it from your shell's start-up file.

    It completes objects too: `mooring why pod/de` asks the running Mooring, for at most half a second.

    Example: mooring completion bash > ~/.local/share/bash-completion/completions/mooring

    Example: mooring completion zsh > ~/.zfunc/_mooring
    """
    from mooring.cli import app as whole

    print(whole.generate_completion(shell=shell))  # noqa: T201 - a script of ours, with tabs


def kubectl() -> None:
    """`kubectl_complete-mooring WORDS… LAST`: a candidate a line, then what the shell may add (4: no files)."""
    *before, last = sys.argv[1:] or [""]
    print_text("\n".join([*candidates(before, last), ":4"]))


def candidates(before: list[str], last: str) -> list[str]:
    """Commands, options and the words an option takes that may stand here and begin with what was typed."""
    from mooring.cli import app as whole

    _, apps, rest = whole.parse_commands(before)
    here = apps[-1]
    arguments = here.assemble_argument_collection() if here.default_command is not None else ()
    found: set[str] = set()
    if rest and rest[-1].startswith("-"):
        found = {word for a in arguments if rest[-1] in a.names for word in a.get_choices() or ()}
    elif last.startswith("-"):
        found = {name for a in arguments for name in a.names if name.startswith("--")}
    elif here.name[:1] == ("why",) and not rest:
        from mooring.cli.why import objects

        found = set(objects(last))
    elif not rest:
        found = {name for name in here if not name.startswith("-")}
        found |= {word for a in arguments if a.index == 0 for word in a.get_choices() or ()}
    return sorted(name for name in found if name.startswith(last))
