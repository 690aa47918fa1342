"""`mooring config`: each setting, its value, where it comes from, and whether a running Mooring takes it over."""

from typing import Annotated, Final

from cyclopts import App, Parameter

from mooring.cli.connect import Features, OwnNamespace, Pd, settings
from mooring.cli.output import Format, Output, note, print_data, print_table
from mooring.core.model.exits import Exit, UserError

app = App(name="config")

#: Of a value in the table.
LONGEST: Final = 60


@app.default
def config(
    key: Annotated[str, Parameter(help="Only this setting, or those below it: handoff, handoff.recheck-s.")] = "",
    /,
    *,
    file: Annotated[str, Parameter(name=["--config", "-f"], help="The settings file that `mooring run` gets.")] = "",
    features: Features = "",
    namespace: OwnNamespace = "",
    pd: Pd = (),
    changed: Annotated[bool, Parameter(help="Only what is not the default.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Show every setting as `mooring run` would take it: value, source, and whether it follows at run time.

    Flags beat the environment (MOORING_…), which beats the file, which beats the defaults. A key that is not known is
    refused (2) with its file, its line and the nearest name. Secrets are never shown.

    Example: mooring config -f mooring.yml --changed

    Example: mooring config handoff

    Example: mooring config -o json
    """
    from mooring.core.model.spelling import did_you_mean
    from mooring.process.settings.config import written_out
    from mooring.process.settings.keys import settings as described

    resolved = settings({"features": features, "namespace": namespace}, file, pd)
    every = list(described(written_out(resolved.config), resolved.sources))
    found = [one for one in every if not key or one.key == key or one.key.startswith(f"{key}.")]
    if not found:
        groups = {one.key.partition(".")[0] for one in every}
        known = f"; there are {', '.join(sorted(groups))}"
        raise UserError(f"no setting {key!r}{did_you_mean(key, {*groups, *(one.key for one in every)}) or known}")
    if changed:
        found = [one for one in found if one.source != "default"]
    if output.data:
        print_data(
            output, {one.key: {"value": one.value, "source": one.source, "follows": one.follows} for one in found}
        )
    elif found:
        rows = [(s.key, _text(s.value), s.source, "at once" if s.follows else "after a restart") for s in found]
        print_table(("SETTING", "VALUE", "SOURCE", "FOLLOWS"), rows)
    else:
        note("every setting is the default")
    return Exit.DONE


def _text(value: object) -> str:
    import msgspec

    if isinstance(value, str):
        return value or "–"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… (-o json)"
