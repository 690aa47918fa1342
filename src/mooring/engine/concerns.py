"""Which running operators are asked again when something has happened: those that name it."""

from mooring.model.events import Change, Happening, PdLost, PdSeen, RegionsSeen
from mooring.model.kinds import Kind
from mooring.model.operator import Operator


def concerns(operator: Operator, happening: Happening) -> bool:
    """Does this concern the operator? Its own cluster's PD, or an object it names."""
    named = operator.args
    match happening:
        case PdSeen(cluster=cluster) | PdLost(cluster=cluster):
            return named.get("cluster") == str(cluster)
        case RegionsSeen():
            return False  # whoever asked for it is told by the outcome
        case Change(kind=kind, key=key):
            text = str(key)
            if kind is Kind.POD:
                return named.get("pod") == text or operator.subject == f"pod/{text}"
            if kind is Kind.NODE:
                return named.get("node") == text or operator.subject == f"node/{text}"
            return named.get("cluster") == text or named.get("workload") == f"{kind}/{text}"
        case _:
            return operator.source == "fleet"
