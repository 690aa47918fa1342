"""What can go wrong in the lab that a person can fix, said in one sentence each."""

from mooring.core.model.exits import Exit, UserError


class LabError(UserError):
    """The lab cannot do what was asked. The message says what, where, and what would be right."""

    code = Exit.UNREACHABLE


class WrongRequestError(LabError):
    """What was asked for does not exist: a mistake in the request, not in the machine."""

    code = Exit.USAGE
