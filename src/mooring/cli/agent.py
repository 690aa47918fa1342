"""`mooring agent`: the process that the DaemonSet of the chart runs on each node."""

import os
from typing import Annotated

from cyclopts import Parameter

from mooring.core.model.exits import UserError


def agent(
    *,
    node: Annotated[str, Parameter(help="Its own Node (MOORING_AGENT_NODE).")] = "",
    cloud: Annotated[
        str, Parameter(help="aws, google, azure, none, auto: as the Node says (MOORING_AGENT_CLOUD).")
    ] = "",
    every_s: Annotated[
        str, Parameter(help="Seconds between looks, 1 to 60; 5 if not given (MOORING_AGENT_EVERY_S).")
    ] = "",
    reboot_file: Annotated[
        str, Parameter(help="A file that asks for a reboot; none: not looked for (MOORING_AGENT_REBOOT_FILE).")
    ] = "",
) -> None:
    """Read this machine's interruption notices from its cloud, and keep them as an annotation on its Node.

    It runs in a pod, with that pod's account. The chart (agent.enabled) and `mooring manifests --agent` bring the
    DaemonSet, which runs `python -m mooring.agent.watch`: the same without this command line, in half the memory.

    Example: mooring agent --node n1 --cloud aws

    Example: mooring agent --node n1 --cloud none --reboot-file /var/run/reboot-required
    """
    from mooring.agent.watch import VARIABLES, settings_of, watch

    given = {"node": node, "cloud": cloud, "every_s": every_s, "reboot_file": reboot_file}
    environment = {**os.environ, **{VARIABLES[name]: text for name, text in given.items() if text}}
    try:
        watch(settings_of(environment), environment)
    except ValueError as error:
        raise UserError(str(error)) from None
