"""`mooring traffic`: the former name of `mooring balance` and `mooring queue replay|migrate`, kept for one release."""

from typing import Final

from cyclopts import App

#: name → where it lives now, and its line in help.
MOVED: Final = {
    "replay": ("mooring.cli.queue_replay:replay", "Now mooring queue replay."),
    "migrate": ("mooring.cli.queue_replay:migrate", "Now mooring queue migrate."),
    "compare": ("mooring.cli.balance:compare", "Now mooring balance compare."),
    "calibrate": ("mooring.cli.balance:calibrate", "Now mooring balance calibrate."),
    "release": ("mooring.cli.balance_release:release", "Now mooring balance release."),
}
app = App(
    name="traffic", help="Former name of `mooring balance` and of `mooring queue replay` and `migrate`.", show=False
)
for _name, (_where, _words) in MOVED.items():
    app.command(_where, name=_name, help=_words)
