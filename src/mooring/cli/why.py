"""`mooring why`: where a thing is, why there, what it waits for, what it would take."""

from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from mooring.cli.connect import ObjectNamespace
from mooring.cli.output import Format, Output, painted, print_data, print_text, runnable, width
from mooring.cli.server import HERE, Reach, Watch, ask, following
from mooring.core.model.exits import Exit, UserError
from mooring.process.terminal.wrap import plain

app = App(name="why")

NEXT: Final = (
    "  mooring queue                        what moves and what waits, in order",
    "  mooring top                          the same, live",
)
#: A shell waits for its completions: better none than late.
COMPLETE_S: Final = 0.5


def objects(typed: str, reach: Reach = HERE) -> list[str]:
    """What may follow what was typed: kinds, and once a name has begun, the objects of the running Mooring."""
    from mooring.core.engine.why.names import beginnings, completed, kind_of

    kind, slash, name = typed.partition("/")
    if not slash:
        return beginnings(typed)
    if not kind_of(kind) or not name:
        return []
    try:
        return completed(typed, ask(reach, f"/api/v1/find?q={name}", timeout_s=COMPLETE_S, forward=False)["found"])
    except UserError:
        return []


@app.default
def why(
    subject: Annotated[
        str,
        Parameter(
            help="KIND/NAME or a name: pod, node, machine, workload, operator, store, cluster, rack.",
            completer=lambda context: objects(context.incomplete),
        ),
    ] = "",
    name: Annotated[str, Parameter(help="The name, where KIND and NAME are typed apart.")] = "",
    /,
    *,
    namespace: ObjectNamespace = "",
    all_: Annotated[bool, Parameter(name="--all", help="The whole history that is kept.")] = False,
    watch: Watch = False,
    reach: Reach = HERE,
    output: Output = Format.TABLE,
) -> None:
    """Explain one object, in the words of the running Mooring; without one, how the cluster is, in a sentence.

    Line 1 is the answer. `waiting`: nothing for you to do. `blocked`: a person must act. `refused`: never.
    `stable` and `moving` say so. What does not happen is explained too: the capabilities are run dry.

    Example: mooring why pod/demo-tikv-1 -n tidb

    Example: mooring why node n7 -w

    Example: mooring why
    """
    if not subject and not namespace:
        following(
            lambda: ask(reach, "/api/v1/frame")["head"],
            lambda head: (head["verdict"], head["needs_do"]),
            lambda head: overview(head, output),
            watch=watch,
        )
        return
    following(
        lambda: _asked(reach, f"{subject}/{name}" if name else subject, namespace),
        lambda answer: (answer["state"], answer["answer"]),
        lambda answer: show(answer, output, everything=all_),
        watch=watch,
    )


def overview(head: Any, output: Format = Format.TABLE) -> None:
    """The verdict, and what one would type next."""
    verdict, needs = head["verdict"], head["needs"]
    if output.data:
        print_data(output, {**verdict, "needs": needs, "to_type": head["needs_do"], "about": head["needs_about"]})
        return
    print_text(painted(plain(verdict["words"]), "blocked"))
    lines = [f"  {plain(head['needs_do'])}"] if needs and head["needs_do"] else []
    about = plain(head["needs_about"]) or "KIND/NAME"
    lines += [f"  mooring why {about:<24} what one object waits for, and what to type", *NEXT]
    print_text("\n".join(map(runnable, ["", *lines])))


def _asked(reach: Reach, subject: str, namespace: str) -> Any:
    from mooring.core.engine.why.names import kind_of, spelled_out

    try:
        path = spelled_out(subject, namespace)
    except UserError as error:
        # NAMESPACE/NAME, as our own answers write it, unless nothing there is called so.
        space, slash, name = subject.partition("/")
        if not (space and slash and name) or namespace or "/" in name or kind_of(space):
            raise
        try:
            return ask(reach, f"/api/v1/why/{name}?namespace={space}", missing="none")
        except UserError as answered:
            raise (error if answered.code is Exit.CHECK_FAILED else answered) from None
    where = f"?namespace={namespace}" if namespace else ""
    return ask(reach, f"/api/v1/why/{path}{where}", missing=f"{path} not found")


def show(answer: Any, output: Format, *, everything: bool) -> None:
    if output.data:
        print_data(output, answer)
        return
    from mooring.core.engine.why.words import render

    first, *rest = map(plain, render(answer, everything=everything, width=width()))
    print_text("\n".join([painted(first, answer["state"]), *map(runnable, rest)]))
