"""Everything there is to say about why a subject is as it is; one of it becomes the answer, by fixed precedence.

    feature off > misconfigured > never fits > fact > PDB > target full > behind another operator > source cap > not yet
    seen

Operators that run without trouble come after these, `stable` comes last.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from mooring.core.engine.engine import Engine
from mooring.core.engine.standing import state_of, state_of_refusal
from mooring.core.engine.why.condition import Condition
from mooring.core.engine.why.dry import Dry, queue_refusal
from mooring.core.engine.why.subject import Subject
from mooring.core.engine.why.words import brief, doing, ends, ends_itself, fit, it, short, span, standstill_s, step
from mooring.core.model import subjects
from mooring.core.model.decision import OperatorRecord, Verdict
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.queue.why import Why
from mooring.core.queue.why import why as queue_why
from mooring.core.world.members import shown_target

_FACTS: Final = 3
ON_THE_WAY: Final = 9
#: What the object is like by itself.
BY_ITSELF: Final = 10
CALMEST: Final = 11
#: Every reason there is, by precedence.
_BY_RANK: Final[dict[int, tuple[Reason, ...]]] = {
    0: (Reason.FEATURE_OFF, Reason.OBSERVING),
    1: (Reason.MISCONFIGURED, Reason.INVALID, Reason.CONFLICT),
    2: (Reason.NEVER_FITS, Reason.PAUSED, Reason.OUTSIDE_WINDOW),
    _FACTS: (
        # What is broken, or lacking.
        Reason.FACT,
        Reason.DEFECT,
        Reason.FORBIDDEN,
        Reason.FAILED,
        Reason.NO_ROOM,
        Reason.NO_EXECUTE,
        Reason.NOT_CREATED,
        Reason.QUORUM,
        Reason.UNMET,
        Reason.REMOVAL_BLOCKED,
        Reason.UNKNOWN,
        # PD, stores and the registry.
        Reason.PD_UNREACHABLE,
        Reason.LEADERS_UNREACHABLE,
        Reason.PD_TLS,
        Reason.PD_UNSURE,
        Reason.PD_HALTED,
        Reason.PAUSED_BY_OTHERS,
        Reason.TOO_MANY_REGIONS,
        Reason.REGISTRY_UNREACHABLE,
        Reason.STORE_NOT_UP,
        Reason.STORE_UNKNOWN,
        Reason.STORE_CHANGED,
        Reason.ONE_STORE,
        Reason.LOG_BACKUP,
        Reason.STALLED,
        # Pods that cannot go, or are not there yet.
        Reason.LOCAL_VOLUME,
        Reason.BARE_POD,
        Reason.EMPTY_DIR,
        Reason.POD_NOT_READY,
        Reason.LEADERS_LEFT,
        Reason.PREPARED,
        Reason.HELD_LONG,
        Reason.UNSCHEDULED,
        Reason.NODE_NOT_READY,
        Reason.NODE_GONE,
        Reason.SUBJECT_GONE,
        Reason.CLUSTER_GONE,
        # Why something is asked for, or how an object is.
        Reason.ASKED,
        Reason.WRONG_CLASS,
        Reason.UNMET_FLOOR,
        Reason.DISABLED,
        Reason.NOTICE,
        Reason.DEADLINE,
        Reason.RETIRING,
        Reason.REPAIR,
        Reason.BALANCE,
        Reason.RETURN_TO_SPOT,
        Reason.RESUMED,
        Reason.EVICTED,
        Reason.CORDONED,
        Reason.TAINTED,
        Reason.LEAVING,
        Reason.HOME,
        Reason.HOME_UNKNOWN,
        Reason.HOME_ABSENT,
        Reason.RESERVED,
        Reason.ADOPTED,
        Reason.SLOT,
        Reason.NOT_MANAGED,
        # How something ended.
        Reason.DONE,
        Reason.CANCELED,
        Reason.TIMEOUT,
        Reason.EXPIRED,
        Reason.REPLACED,
        Reason.WITHDRAWN,
        Reason.SWEPT,
        Reason.NOT_RUNNING,
        Reason.TIME,
    ),
    4: (Reason.PDB,),
    5: (Reason.TARGET_FULL, Reason.TARGET_PAUSED, Reason.STORE_PAUSED),
    6: (Reason.BEHIND, Reason.SUBJECT_BUSY, Reason.REGION_BUSY),
    7: (Reason.TOO_MANY_WAITING,),
    8: (Reason.SETTLING, Reason.COOLDOWN, Reason.BACK_OFF, Reason.NOT_SYNCED, Reason.NOT_LEADER),
}


def ranks(by_rank: Mapping[int, Iterable[Reason]]) -> dict[Reason, int]:
    """Reason → rank. A reason without one fails here, at import: it would stand in line 1 by accident."""
    found = {reason: rank for rank, reasons in by_rank.items() for reason in reasons}
    if unranked := set(Reason) - found.keys():
        raise ValueError(f"no rank for {', '.join(sorted(unranked))}: say what comes before and after it")
    return found


RANK: Final = ranks(_BY_RANK)
#: A verdict with one of these asks for something.
WANTED: Final = frozenset({Reason.NOTICE, Reason.DEADLINE, Reason.RETIRING, Reason.WRONG_CLASS, Reason.UNMET_FLOOR})
#: The command stands under `to change`.
ACT: Final = "a person must act"
CALM: Final = "Nothing for you to do."


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    state: State
    reason: Reason
    #: What follows the subject's name in line 1: state word, what there is to say, what ends it.
    head: str
    detail: str = ""
    tail: str = ""
    operator: Operator | None = None
    waiting_on: Why | None = None
    verdict: Verdict | None = None
    #: What to type, each a word and a command.
    commands: tuple[tuple[str, str], ...] = ()
    #: The capability that is off.
    capability: str = ""
    rank: int = _FACTS

    def says(self, name: str) -> str:
        return fit(f"{name} {self.head}", self.detail, self.tail)


def _finding(
    state: State,
    reason: Reason,
    says: tuple[str, str, str],
    *,
    operator: Operator | None = None,
    waiting_on: Why | None = None,
    verdict: Verdict | None = None,
    rank: int | None = None,
) -> Answer:
    return Answer(
        state=state,
        reason=reason,
        head=says[0],
        detail=says[1],
        tail=says[2],
        operator=operator,
        waiting_on=waiting_on,
        verdict=verdict,
        rank=RANK[reason] if rank is None else rank,
    )


def of_condition(found: Condition) -> Answer:
    """What the object is like by itself, below everything that Mooring plans for it."""
    head, ends = f"is {found.state}: ", f"; {found.ends}." if found.ends else "; no pending changes."
    rank = BY_ITSELF if found.state is not State.STABLE else CALMEST
    finding = _finding(found.state, found.reason, (head, found.detail, ends), rank=rank)
    return msgspec.structs.replace(finding, commands=found.commands)


def of_operators(engine: Engine, subject: Subject, operators: list[Operator], now: float) -> Iterator[Answer]:
    for operator in operators:
        running = engine.running.get(operator.id)
        if running is not None:
            yield _refused(engine, subject, running) or _running(engine, subject, running, now)
        else:
            yield _waiting(engine, subject, operator)


def _refused(engine: Engine, subject: Subject, running: OperatorRecord) -> Answer | None:
    """The API server refused its last write and would refuse it again: a right, a quota or a webhook is in the way."""
    operator = running.operator
    last = next(reversed([*engine.history.of(subjects.operator(operator.id))]), None)
    if last is None or last.verb != "could-not" or last.reason != Reason.FAILED:
        return None
    about = "" if it(operator) == short(subject.name) else f" ({doing(engine.described, operator)})"
    missing = "forbidden" in last.text and "quota" not in last.text
    says = (f"is blocked{about}: the API server refused: ", last.text.rstrip("."), "; a person must act.")
    return _finding(State.BLOCKED, Reason.FORBIDDEN if missing else Reason.FAILED, says, operator=operator)


def _running(engine: Engine, subject: Subject, running: OperatorRecord, now: float) -> Answer:
    operator, verdict = running.operator, running.waiting_on
    still = standstill_s(running, now)
    about = "" if it(operator) == short(subject.name) else f" ({doing(engine.described, operator)})"
    state = state_of(running)
    if verdict is not None and state is State.BLOCKED:
        says = (f"is blocked{about}: ", plain(subject, verdict.detail), f"; {ACT}.")
        return _finding(State.BLOCKED, verdict.reason, says, operator=operator, verdict=verdict)
    if verdict is not None and state is State.WAITING:
        says = (f"is waiting{about}: ", plain(subject, verdict.detail), f"; {_ends_fact(subject, verdict.reason)}.")
        return _finding(State.WAITING, verdict.reason, says, operator=operator, verdict=verdict)
    so_far = plain(subject, running.progress or (verdict.detail if verdict is not None else ""))
    if still:
        says = (f"is moving{about}, but stalled for {span(still)} in {step(running)}: ", so_far or "no progress", ".")
        return _finding(State.MOVING, Reason.STALLED, says, operator=operator)
    says = (f"is moving{about}: ", brief(so_far) or step(running), f"; ends {ends_itself(engine.described, running)}.")
    return _finding(State.MOVING, operator.reason, says, operator=operator, rank=ON_THE_WAY)


def _waiting(engine: Engine, subject: Subject, operator: Operator) -> Answer:
    waiting_on = queue_why(engine.queue, operator.id)
    if waiting_on is not None:
        waiting_on = msgspec.structs.replace(waiting_on, target=shown_target(waiting_on.target, engine.world))
    about = "" if it(operator) == short(subject.name) else f" ({doing(engine.described, operator)})"
    if waiting_on is None or not waiting_on.target:
        says = (f"is waiting{about}: ", f"op {operator.id} has not been looked at yet", f"; it is next. {CALM}")
        return _finding(State.WAITING, Reason.NOT_SYNCED, says, operator=operator, waiting_on=waiting_on)
    if waiting_on.reason is Reason.FACT:
        fact = waiting_on.facts[0]
        more = f" (and {len(waiting_on.facts) - 1} more)" if len(waiting_on.facts) > 1 else ""
        says = (f"is waiting{about}: ", f"{fact.detail or fact.subject}{more}", "; ends when that is fixed.")
        return _finding(State.WAITING, Reason.FACT, says, operator=operator, waiting_on=waiting_on)
    first = engine.queue.get(waiting_on.blocked_by[0]) if waiting_on.blocked_by else None
    if first is None:
        says = (f"is waiting{about} for ", waiting_on.target, f": {waiting_on.used} of {waiting_on.limit} used. {CALM}")
    else:
        rest = len(waiting_on.blocked_by) + waiting_on.more - 1
        others = f" and {rest} more" if rest else ""
        says = (
            f"is waiting{about} for op {first.id} ",
            f"({doing(engine.described, first)}){others}",
            f"; ends {ends(engine.described, first)}. {CALM}",
        )
    return _finding(State.WAITING, waiting_on.reason, says, operator=operator, waiting_on=waiting_on)


def of_dry(engine: Engine, subject: Subject, dry: Dry) -> Iterator[Answer]:
    if not dry.on:
        what = _asked_of(engine, dry)
        if what:
            says = ("is refused: ", f"{what} is needed, and {dry.capability} is off", f"; ends with {switch(dry)}.")
            finding = _finding(State.REFUSED, Reason.FEATURE_OFF, says)
            yield msgspec.structs.replace(finding, capability=dry.capability)
        return
    for verdict in dry.verdicts:
        yield _judged(subject, verdict)
    for proposal in dry.proposals:
        what = proposal.kind.replace("-", " ")
        held = engine.holds.verdict(dry.capability, proposal, engine.queue.settings.windows, engine.now)
        if held is not None:
            yield _held(subject, dry, what, held)
            continue
        refused = queue_refusal(engine, proposal)
        if refused is None:
            says = ("is waiting: ", f"{dry.capability} is about to propose {what}", f". {CALM}")
            yield _finding(State.WAITING, Reason.NOT_SYNCED, says)
        elif state_of_refusal(engine.queue, proposal, refused[0]) is State.REFUSED:
            says = ("is refused: ", f"{what} {refused[1]}", "; never, as configured.")
            yield _finding(State.REFUSED, refused[0], says)
        elif refused[0] is not Reason.SUBJECT_BUSY:  # else it is queued already, or waits for its own first half
            yield _finding(
                State.WAITING, refused[0], ("is waiting: ", f"{what}: {refused[1]}", "; ends when that changes.")
            )


def _held(subject: Subject, dry: Dry, what: str, held: Verdict) -> Answer:
    if held.reason is not Reason.OBSERVING:
        return _judged(subject, held)
    says = ("is stable: ", f"{dry.capability} would {what}, and only observes", f"; ends with {switch(dry)}.")
    return _finding(State.STABLE, held.reason, says, verdict=held)


def switch(dry: Dry) -> str:
    return f"--features {dry.capability}=true"


def _asked_of(engine: Engine, dry: Dry) -> str:
    """In two or three words, what a switched-off capability is asked for; "": nothing."""
    if dry.proposals or any(verdict.subject or verdict.reason in WANTED for verdict in dry.verdicts):
        return engine.described.request(dry.capability)
    return ""


def _judged(subject: Subject, verdict: Verdict) -> Answer:
    detail = plain(subject, verdict.detail)
    match verdict.state:
        case State.BLOCKED:
            says = ("is blocked: ", detail, f"; {ACT}.")
        case State.REFUSED:
            says = ("is refused: ", detail, "; never, as configured.")
        case State.WAITING:
            says = ("is waiting: ", detail, f"; {_ends_fact(subject, verdict.reason)}.")
        case _:
            says = (f"is {verdict.state}: ", detail or "no pending changes", ".")
    rank = None if verdict.state in {State.BLOCKED, State.REFUSED, State.WAITING} else CALMEST
    return _finding(verdict.state, verdict.reason, says, verdict=verdict, rank=rank)


def _ends_fact(subject: Subject, reason: Reason) -> str:
    whose = f" of {subject.cluster.key}" if subject.cluster is not None else ""
    return {
        Reason.PD_UNREACHABLE: f"ends when the PD{whose} answers",
        Reason.LEADERS_UNREACHABLE: "ends when its system answers",
        Reason.PD_UNSURE: f"ends when the PD{whose} is sure",
        Reason.REGISTRY_UNREACHABLE: "ends when the registry answers",
        Reason.STORE_NOT_UP: "ends when the store is Up",
        Reason.STORE_UNKNOWN: "ends when PD knows the store",
        Reason.RETIRING: "ends when its machine is RETIRED and leaves the cluster",
    }.get(reason, "ends when that is fixed")


def plain(subject: Subject, text: str) -> str:
    """Without the subject's own name in front: line 1 begins with it already."""
    text = text.removeprefix(f"{short(subject.name)}: ")
    name = f"{short(subject.name)} "
    rest = text.removeprefix(name).rstrip(".")
    if not text.startswith(name):
        return rest
    return rest.removeprefix("is ") if rest.startswith("is ") else f"it {rest}"
