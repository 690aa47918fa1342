"""`mooring traffic`: the former name of `mooring balance` and `mooring queue replay|migrate`, kept for one release."""

from cyclopts import App

app = App(
    name="traffic", help="Former name of `mooring balance` and of `mooring queue replay` and `migrate`.", show=False
)
app.command("mooring.cli.queue_replay:replay", name="replay")
app.command("mooring.cli.queue_replay:migrate", name="migrate")
app.command("mooring.cli.balance:compare", name="compare")
app.command("mooring.cli.balance:calibrate", name="calibrate")
app.command("mooring.cli.balance_release:release", name="release")
