"""`mooring home`: where members belong, and the kube-scheduler configuration that makes a scheduler ask."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from mooring.cli.connect import AllNamespaces, Context, Kubeconfig, OnlyNamespace, connect
from mooring.cli.output import Listed, Listing, note, print_data, print_json, print_table, print_text
from mooring.cli.server import HERE, Reach, Watch, ask, following, only_in
from mooring.core.model.exits import UserError
from mooring.core.model.times import time_of_day

app = App(name="home", help="Recreated members go back to their node: which are there, and how a scheduler asks.")


@app.command
def status(
    *,
    namespace: OnlyNamespace = "",
    everywhere: AllNamespaces = False,
    watch: Watch = False,
    reach: Reach = HERE,
    output: Listed = Listing.TABLE,
) -> None:
    """List every member with its home, where it is now, and which nodes are reserved.

    Example: mooring home status

    Example: mooring home status -n tidb -o json
    """

    def look() -> Any:
        answer = ask(reach, "/api/v1/home")
        answer["members"] = [m for m in answer["members"] if namespace in {"", m["namespace"]}]
        return answer

    def show(answer: Any) -> None:
        only_in(reach, namespace, everywhere=everywhere, found=bool(answer["members"]))
        _show(answer, output)

    following(look, lambda answer: [answer["on"], *map(_row, answer["members"])], show, watch=watch)


def _show(answer: Any, output: Listing) -> None:
    if output is Listing.NAME:
        print_text("".join(f"pod/{m['namespace']}/{m['member']}\n" for m in answer["members"]), end="")
        return
    if output.data:
        print_data(output, answer)
        return
    if not answer["on"]:
        note("home is off (mooring run --features home=true): schedulers get every candidate back")
    for reservation in answer.get("unknown_reservations", ()):
        note(f"{reservation['node']} is {reservation['why']}; to free it: {reservation['remedy']}")
    if not answer["members"]:
        note("no TiDB members, and no StatefulSet with the label mooring.dev/home=true")
        return
    rows = [_row(member) for member in answer["members"]]
    print_table(("NAMESPACE", "MEMBER", "HOME", "NOW", "STATE", "MODE", "RESERVED"), rows)
    for reservation in answer["reservations"]:
        note(f"{reservation['node']} is kept free for {reservation['pod']} until {_clock(reservation['until'])}")


def _row(member: dict[str, Any]) -> tuple[str, ...]:
    reservation = member["reserved"] or ("on" if member["reserves_node"] else "off")
    home, now = member["home"] or "–", member["now"] or "–"
    return (member["namespace"], member["member"], home, now, member["state"], member["mode"], reservation)


def _clock(at: float | None) -> str:
    return "?" if at is None else time_of_day(at)


@app.command(name="scheduler-config")
def scheduler_config(
    *,
    k8s: Annotated[str, Parameter(help="Kubernetes version, e.g. 1.36; empty asks the cluster.")] = "",
    profile: Annotated[str, Parameter(help="schedulerName of the pods that use it.")] = "tidb-scheduler",
    url: Annotated[str, Parameter(help="Where the scheduler reaches mooring run --listen-extender.")] = "",
    prefer: Annotated[bool, Parameter(help="Add the prioritize verb, for members that prefer to go home.")] = False,
    namespace: Annotated[
        str, Parameter(name=["--namespace", "-n"], help="Where the scheduler keeps its lease.")
    ] = "mooring-system",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    to: Annotated[str, Parameter(help="Write it into this file instead, readable by its owner alone.")] = "",
    output: Annotated[str, Parameter(name=["--output", "-o"], help="yaml or json.")] = "yaml",
) -> None:
    """Print a KubeSchedulerConfiguration for a kube-scheduler that asks Mooring.

    Run it as a second scheduler beside the default one, with Mooring on the same host or in the same pod.

    Example: mooring home scheduler-config > tidb-scheduler.yaml

    Example: mooring home scheduler-config --k8s 1.36 --prefer -o json
    """
    from mooring.install import scheduler

    if output not in {"yaml", "json"}:
        raise UserError(f"-o {output}: yaml or json")
    version = k8s or _ask_version(kubeconfig, context)
    try:
        document = scheduler.scheduler_config(
            version, profile=profile, url=url or scheduler.URL, prefer=prefer, namespace=namespace
        )
    except scheduler.TooOldError as error:
        raise UserError(str(error)) from None
    if output == "json" and not to:
        print_json(document)
        return
    import yaml

    text = yaml.safe_dump(document, sort_keys=False)  # JSON is YAML, too
    if not to:
        print_text(text, end="")
        return
    try:
        Path(to).touch(mode=0o600)
        Path(to).write_text(text)
    except OSError as error:
        raise UserError(f"--to {to}: {error.strerror or error}; give a file in a directory that is there") from None


def _ask_version(kubeconfig: str, context: str) -> str:
    import asyncio

    async def ask_server() -> str:
        async with connect(kubeconfig, context, hint="or name the version with --k8s") as api:
            return str((await api.raw("GET", "/version"))["gitVersion"])

    return asyncio.run(ask_server())
