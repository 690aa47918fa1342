"""`mooring pause` and `mooring resume`: nothing new begins, for a feature or for everything, until a person says so.

Both write one ConfigMap in Mooring's own namespace (`mooring-pause`), which a running Mooring obeys at once.
"""

import asyncio
import getpass
import re
import time
from typing import Annotated, Final

from cyclopts import App, Parameter

from mooring.cli.connect import Context, Kubeconfig, OwnNamespace, connect
from mooring.cli.output import note
from mooring.core.model.exits import UserError

app = App(name="pause")
resuming = App(name="resume")

Features = Annotated[tuple[str, ...], Parameter(help="home, handoff, mix, fleet, balance, drain; none: everything.")]
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds(text: str, flag: str) -> float:
    """`90s`, `30m`, `2h`, `1d`."""
    found = re.fullmatch(r"([1-9]\d{0,6})([smhd])", text)
    if found is None:
        raise UserError(f"{flag} {text}: must be a number and s, m, h or d, e.g. 30m")
    return int(found[1]) * _UNITS[found[2]]


@app.default
def pause(
    features: Features = (),
    /,
    *,
    for_: Annotated[str, Parameter(name="--for", help="How long, e.g. 30m or 2h. Default: until it is resumed.")] = "",
    all_: Annotated[bool, Parameter(name="--all", help="Also what has a deadline, and notices.")] = False,
    why: Annotated[str, Parameter(help="Shown to everybody who asks.")] = "",
    namespace: OwnNamespace = "mooring-system",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Let nothing new begin. What runs ends well; notices and requests with a deadline go on unless --all.

    Example: mooring pause

    Example: mooring pause mix balance --for 2h --why "release week"
    """
    from mooring.core.engine.holds import EVERYTHING, Pause
    from mooring.core.model.times import rfc3339

    until = rfc3339(time.time() + seconds(for_, "--for")) if for_ else ""
    told = Pause(by=user(), until=until, deadlines=all_, why=why)
    asyncio.run(_write(dict.fromkeys(_checked(features) or (EVERYTHING,), told), namespace, kubeconfig, context))
    end = f"until {until}" if until else "until it is resumed"
    what = ", ".join(features) or "everything"
    note(f"{what} is paused {end}; to end it: mooring resume {' '.join(features)}".rstrip())


@resuming.default
def resume(
    features: Features = (),
    /,
    *,
    namespace: OwnNamespace = "mooring-system",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """End a pause: of these features, or all pauses.

    Example: mooring resume

    Example: mooring resume mix
    """
    asyncio.run(_write(dict.fromkeys(_checked(features)), namespace, kubeconfig, context))
    note(f"{', '.join(features) or 'everything'} goes on")


def _checked(features: tuple[str, ...]) -> tuple[str, ...]:
    from mooring.capabilities.registry import names

    for feature in features:
        if feature not in names():
            raise UserError(f"{feature}: no feature of this name; there are {', '.join(names())}")
    return features


def user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


async def _write(entries: "dict[str, object]", namespace: str, kubeconfig: str, context: str) -> None:
    """No entries: all of them go."""
    import msgspec

    from mooring.clients.ports import NotFoundError
    from mooring.core.engine.holds import PAUSE_MAP
    from mooring.core.model.kinds import Kind

    data = {name: None if one is None else msgspec.json.encode(one).decode() for name, one in entries.items()}
    async with connect(kubeconfig, context) as api:
        try:
            await api.patch(Kind.CONFIG_MAP, namespace, PAUSE_MAP, {"data": data or None})
        except NotFoundError:
            labels = {"app.kubernetes.io/name": "mooring", "app.kubernetes.io/managed-by": "mooring"}
            made = {"metadata": {"namespace": namespace, "name": PAUSE_MAP, "labels": labels}, "data": data}
            if any(data.values()):
                await api.create(Kind.CONFIG_MAP, made)
