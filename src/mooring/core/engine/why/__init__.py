"""Why is this where it is, what does it wait for, what would it take?

    explain(engine, "pod/tidb/demo-tikv-1") -> Explanation | None
    render(msgspec.to_builtins(explanation)) -> lines of text

Line 1 is the answer: subject, one of five state words, the blocker's name, what ends it. One reason by fixed
precedence (`findings`), the rest under `also`. What does *not* happen is explained too: the capabilities are run dry
(`dry`). A capability adds lines of its own by `explain` (see `engine.capability.Explains`).
"""

from mooring.core.engine.why.answer import explain
from mooring.core.engine.why.names import unknown
from mooring.core.engine.why.words import Explanation, render
from mooring.core.model.decision import Line

__all__ = ["Explanation", "Line", "explain", "render", "unknown"]
