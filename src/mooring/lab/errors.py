"""What can go wrong in the lab that a person can fix, said in one sentence each."""


class LabError(Exception):
    """The lab cannot do what was asked. The message says what, where, and what would be right."""


class WrongRequestError(LabError):
    """What was asked for does not exist: a mistake in the request, not in the machine."""
