"""What the answers of all PDs may take together: Mooring keeps the last of each kind.

A tenant's PD may say much, and a tenant may have many clusters. Beyond the room of all, a namespace that takes more
than its share gets no larger answers; one that takes no more is never refused.
"""

from typing import Final

from mooring.core.model.cluster import Key

MIB: Final = 1 << 20
#: In bytes as they came; in memory they take up to four times as much. Those of a thousand stores take 3 MiB.
MAX_KEPT_BYTES: Final = 32 * MIB
#: Smaller answers are not counted, nor those of a cluster that was not asked for so long.
SMALL: Final = 1 << 16
FORGET_S: Final = 3600.0


class AnswerRoom:
    """One per process."""

    def __init__(self) -> None:
        #: (Cluster, path) → bytes of the last large answer, and when it came.
        self._held: dict[tuple[Key, str], tuple[int, float]] = {}

    def take(self, cluster: Key, path: str, size: int, now: float) -> bool:
        """Whether it may be kept instead of the one before."""
        before, _ = self._held.pop((cluster, path), (0, now))
        if size < SMALL:
            return True
        self._held = {which: held for which, held in self._held.items() if now - held[1] < FORGET_S}
        taken = {cluster.namespace: size}
        for (other, _), (held, _) in self._held.items():
            taken[other.namespace] = taken.get(other.namespace, 0) + held
        full = sum(taken.values()) > MAX_KEPT_BYTES and taken[cluster.namespace] > MAX_KEPT_BYTES // len(taken)
        if full and size > before:
            if before:
                self._held[cluster, path] = (before, now)
            return False
        self._held[cluster, path] = (size, now)
        return True
