"""How reading commands reach a running Mooring: its read-only API.

`--server` or MOORING_SERVER, else loopback (the demo, `mooring run`), else the one in the cluster of the kubeconfig: by
`kubectl port-forward`, for the time of the command. That is what `kubectl mooring why …` does.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from mooring.cli.connect import Context, Kubeconfig, MooringNamespace, reaching
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from mooring.clients.mooring import Forward

DEFAULT: Final = "http://127.0.0.1:8390"
OWN_NAMESPACE: Final = "mooring-system"
ANSWER_S: Final = 10.0
#: Between two looks of a command that watches.
WATCH_S: Final = 1.0
#: The `-w` of a command that can be asked again.
Watch = Annotated[bool, Parameter(name=["--watch", "-w"], help="Print again what changes, until Ctrl-C.")]
HOW: Final = f"""reach one with one of these:
  kubectl -n {OWN_NAMESPACE} port-forward deploy/mooring 8390
  mooring demo --keep
  --server https://HOST:PORT, or MOORING_SERVER"""

#: The `--server` of every command that asks a running Mooring.
Server = Annotated[str, Parameter(help="Where Mooring answers (mooring run --listen-http), or MOORING_SERVER.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Reach:
    """Where the running Mooring is."""

    server: Server = ""
    kubeconfig: Kubeconfig = ""
    context: Context = ""
    #: The namespace of the one in that cluster.
    own: MooringNamespace = OWN_NAMESPACE


HERE: Final = Reach()
#: The way to the Mooring behind a kubeconfig, while the command runs.
_forwarded: dict[Reach, "Forward"] = {}


def ask(
    reach: Reach | str,
    path: str,
    *,
    missing: str = "",
    timeout_s: float = ANSWER_S,
    forward: bool = True,
    read: Callable[[Any], Any] = json.load,
) -> Any:
    """GET one answer. Exit 4 when there is no answer, exit 1 with `missing` when the thing is not there.

    `forward`: where there is no answer on loopback, look in the cluster of the kubeconfig. `read` takes the answer's
    body.
    """
    from mooring.clients.mooring import NoAnswerError, get

    where = Reach(server=reach) if isinstance(reach, str) else reach
    named = where.server or os.environ.get("MOORING_SERVER", "")
    base = named or ("" if where.kubeconfig or where.context else DEFAULT)
    if not named and where in _forwarded:
        base = _forwarded[where].url
    tried = "in"
    if base:
        try:
            return get(base, path, missing, timeout_s, read)
        except NoAnswerError as error:
            tried = f"at {base}: {error}"
            if named or not (forward and _has_kubeconfig(where)):
                raise UserError(f"no Mooring answers {tried}; {HOW}", Exit.UNREACHABLE) from None
            if where in _forwarded:  # the pod behind it was replaced, perhaps
                _forwarded.pop(where).close()
            tried += "; nor in"
    try:
        _forwarded[where] = _forward(where)
        return get(_forwarded[where].url, path, missing, timeout_s, read)
    except NoAnswerError as error:
        said = f"no Mooring answers {tried} the cluster of the kubeconfig: {error}; {HOW}"
        raise UserError(said, Exit.UNREACHABLE) from None


def only_in(reach: Reach, namespace: str, *, everywhere: bool, found: bool) -> None:
    """`-n` beside `-A`, or a namespace of which Mooring knows nothing: said, instead of an empty list."""
    if not namespace:
        return
    if everywhere:
        raise UserError(f"-n {namespace} and -A: name one namespace, or take all of them")
    if found:
        return
    known = ask(reach, f"/api/v1/find?q={namespace}/")["found"]
    if not any(namespace in subject.split("/")[1:-1] for subject in known):
        said = f"there is no namespace {namespace}, or nothing in it that Mooring knows; see kubectl get namespaces"
        raise UserError(said, Exit.CHECK_FAILED)


def following(look: Callable[[], Any], news: Callable[[Any], Any], show: Callable[[Any], None], *, watch: bool) -> None:
    """`show` what `look` finds; with `watch` again whenever the `news` in it differ, until Ctrl-C."""
    last: Any = None
    try:
        while True:
            answer = look()
            if (key := news(answer)) != last:
                show(answer)
                sys.stdout.flush()
                last = key
            if not watch:
                return
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        if not watch:
            raise


def address(where: Reach) -> str:
    """Where the one that was asked last by this way shows its page; for a browser, which asks itself whom to trust."""
    from mooring.clients.mooring import trusting

    forwarded = _forwarded.get(where)
    return forwarded.url if forwarded else trusting(where.server or os.environ.get("MOORING_SERVER", "") or DEFAULT)[0]


def _forward(where: Reach) -> "Forward":
    from mooring.clients.mooring import forward

    with reaching():
        return forward(where.kubeconfig, where.context, where.own)


def _has_kubeconfig(where: Reach) -> bool:
    files = [where.kubeconfig] if where.kubeconfig else os.environ.get("KUBECONFIG", "").split(os.pathsep)
    return any(file and Path(file).exists() for file in (*files, str(Path.home() / ".kube" / "config")))
