"""How help is laid out: paragraphs flow at the width of the terminal, and an example stays whole."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
