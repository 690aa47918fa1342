"""How help is laid out: paragraphs flow at the width of the terminal, and an example stays whole."""

from typing import TYPE_CHECKING, Any

from cyclopts import CycloptsError, MissingArgumentError, UnknownCommandError, UnusedCliTokensError

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions


class FlowingHelp:
    """cyclopts' own layout, but for the description: a docstring is wrapped at 120 columns, a terminal may be
    narrower."""

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        from cyclopts.help.formatters.default import DefaultFormatter

        DefaultFormatter()(console, options, panel)

    def render_usage(self, console: "Console", options: "ConsoleOptions", usage: Any) -> None:
        from cyclopts.help.formatters.default import DefaultFormatter

        DefaultFormatter().render_usage(console, options, usage)

    def render_description(self, console: "Console", options: "ConsoleOptions", description: Any) -> None:
        from rich.text import Text

        text = getattr(description, "primary_renderable", None)
        for paragraph in str(text or "").split("\n\n"):
            flowing = Text(" ".join(paragraph.split()))
            console.print(flowing, soft_wrap=flowing.plain.startswith("Example: "))
            console.print()


def mistyped(error: CycloptsError, whole: "App") -> str:
    """What was typed that is not known, what is near, and where all of it is listed."""
    from mooring.core.model.spelling import did_you_mean

    command = " ".join(("mooring", *(error.command_chain or ())))
    words = [str(word) for word in error.unused_tokens or ()]
    match error:
        case UnusedCliTokensError() if words:
            said = f"{command} takes no more words: {' '.join(words)} is one too many"
        case UnknownCommandError() if words and words[0].startswith("-"):
            said = f"{command} has no option {words[0]}"
        case UnknownCommandError() if words:
            here = whole
            for name in error.command_chain or ():
                here = here[name]
            known = [name for name in here if not name.startswith("-") and here[name].show]
            said = f"{command} has no command {words[0]}{did_you_mean(words[0], known)}"
        case MissingArgumentError(argument=argument) if argument is not None:
            said = f"{error.keyword} needs a value" if error.keyword else f"{command} needs {argument.name}"
        case _:
            said = str(error).rstrip(".")
            if said.startswith("Unknown option: -n") and (error.command_chain or ("",))[0] != "top":
                said += ", which is the namespace of an object; where Mooring runs is --mooring-namespace"
            said = said.replace("into float", "into a number such as 1.5").replace(
                "into int", "into a number such as 3"
            )
    return f"{said}{' See' if said.endswith('?') else '; see'}: {command} --help"
