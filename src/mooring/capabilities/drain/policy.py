"""What an administrator may set about drains and evictions. Times are seconds."""

from typing import Annotated, Final

import msgspec

from mooring.core.model.cluster import Workload

REPLACE_FIRST: Final = "mooring.dev/replace-first"
_Some = Annotated[float, msgspec.Meta(ge=1, le=86400)]
_Most = Annotated[int, msgspec.Meta(ge=0)]


class ReplaceFirst(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Workloads that are guarded without an annotation of their own."""

    #: All workloads of these namespaces.
    namespaces: tuple[str, ...] = ()
    #: Workloads with all of these labels (`key=value`), in every namespace; none: no workload.
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wrong = [label for label in self.labels if not all(label.partition("=")[::2])]
        if wrong:
            raise ValueError(f"replace-first.labels has {wrong[0]!r}; write key=value, e.g. tier=front")

    def covers(self, workload: Workload) -> bool:
        if workload.namespace in self.namespaces:
            return True
        pairs = (label.partition("=")[::2] for label in self.labels)
        return bool(self.labels) and all(workload.labels.get(key) == value for key, value in pairs)


class DrainPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: An eviction that nobody repeats for so long is no longer wanted: what was prepared for it is undone.
    forget_s: _Some = 600.0
    #: How long a pod that may go is kept ready for the next try of its eviction.
    prepared_s: _Some = 60.0
    #: No eviction of one pod is held for longer, whatever it waits for.
    max_hold_s: _Some = 3000.0
    #: Namespaces trusted beyond `max-hold-s`: a TiKV pod with leaders by its PD's word, and a PD member that the
    #: quorum needs, are kept there until a person acts. `true`: all, `false`: none.
    keep: bool | tuple[str, ...] = False
    #: How long a pod is left alone after it was prepared in vain; ten times as long on a node that is not cordoned.
    back_off_s: _Some = 60.0
    #: How long a replacement, or the pod that comes back, may take to become Ready.
    ready_within_s: _Some = 600.0
    #: Evictions that are held at once: in all, of one namespace, of one node and of one workload. Beyond it they pass.
    most: _Most = 2000
    most_per_namespace: _Most = 1000
    most_per_node: _Most = 250
    most_per_workload: _Most = 250
    #: Workloads that get their replacement first, besides those with `mooring.dev/replace-first: "true"`.
    replace_first: ReplaceFirst = ReplaceFirst()

    def keeps(self, namespace: str) -> bool:
        """Whether an administrator trusts what runs there to say that a pod must not go."""
        return self.keep if isinstance(self.keep, bool) else namespace in self.keep
