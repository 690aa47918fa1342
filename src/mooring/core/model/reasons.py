"""One vocabulary of reasons, used alike in `why`, metric labels, Kubernetes Events, logs and the page.

A reason is a code; the sentence around it names the object, the figure and the blocker. Codes are stable: scripts and
alerts match on them. Add, never rename.
"""

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    # Why something is proposed.
    ASKED = "asked"
    WRONG_CLASS = "wrong-class"
    #: Fewer are on on-demand than are promised, and no node there has room: a Pending replacement asks for one.
    UNMET_FLOOR = "unmet-floor"
    DISABLED = "disabled"
    NOTICE = "notice"
    DEADLINE = "deadline"
    RETIRING = "retiring"
    REPAIR = "repair"
    BALANCE = "balance"
    RETURN_TO_SPOT = "return-to-spot"
    RESUMED = "resumed"
    #: Somebody asked the eviction API for it.
    EVICTED = "evicted"
    # Why the queue rejected an operator.
    INVALID = "invalid"
    REGION_BUSY = "region-busy"
    SUBJECT_BUSY = "subject-busy"
    STORE_PAUSED = "store-paused"
    TARGET_PAUSED = "target-paused"
    NEVER_FITS = "never-fits"
    TOO_MANY_WAITING = "too-many-waiting"
    # Why something waits.
    TARGET_FULL = "target-full"
    BEHIND = "behind"
    FACT = "fact"
    PDB = "pdb"
    NO_ROOM = "no-room"
    SETTLING = "settling"
    COOLDOWN = "cooldown"
    BACK_OFF = "back-off"
    #: It is housekeeping and its window is closed; a person has paused it; its feature decides and does nothing.
    OUTSIDE_WINDOW = "outside-window"
    PAUSED = "paused"
    OBSERVING = "observing"
    NOT_SYNCED = "not-synced"
    NOT_LEADER = "not-leader"
    # Why a running one makes no progress.
    STALLED = "stalled"
    PD_UNREACHABLE = "pd-unreachable"
    #: A system with leaders does not answer, or not in a way that can be read.
    LEADERS_UNREACHABLE = "leaders-unreachable"
    #: The certificates on both sides do not fit, or the Secret that holds ours cannot be read or used.
    PD_TLS = "pd-tls"
    PD_UNSURE = "pd-unsure"
    #: PD's `halt-scheduling` is on; PD's schedulers were paused by another client.
    PD_HALTED = "pd-halted"
    PAUSED_BY_OTHERS = "paused-by-others"
    #: PD lists more regions than there is room for.
    TOO_MANY_REGIONS = "too-many-regions"
    REGISTRY_UNREACHABLE = "registry-unreachable"
    STORE_NOT_UP = "store-not-up"
    STORE_UNKNOWN = "store-unknown"
    STORE_CHANGED = "store-changed"
    ONE_STORE = "one-store"
    #: The checkpoint of a log backup is older than a restart may make it.
    LOG_BACKUP = "log-backup"
    LEADERS_LEFT = "leaders-left"
    POD_NOT_READY = "pod-not-ready"
    LOCAL_VOLUME = "local-volume"
    BARE_POD = "bare-pod"
    EMPTY_DIR = "empty-dir"
    #: All is done that protects it: the next try of the eviction takes the pod.
    PREPARED = "prepared"
    #: An eviction was held for as long as `drain.max-hold-s` allows.
    HELD_LONG = "held-long"
    # How something ended.
    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMEOUT = "timeout"
    EXPIRED = "expired"
    REPLACED = "replaced"
    WITHDRAWN = "withdrawn"
    SUBJECT_GONE = "subject-gone"
    CLUSTER_GONE = "cluster-gone"
    NODE_GONE = "node-gone"
    SWEPT = "swept"
    # Input and configuration.
    FEATURE_OFF = "feature-off"
    MISCONFIGURED = "misconfigured"
    DEFECT = "defect"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    NOT_RUNNING = "not-running"
    TIME = "time"
    # Home and mix, on a pod.
    HOME = "home"
    HOME_UNKNOWN = "home-unknown"
    HOME_ABSENT = "home-absent"
    RESERVED = "reserved"
    ADOPTED = "adopted"
    SLOT = "slot"
    NOT_MANAGED = "not-managed"
    # What an object is like, without an operator of ours.
    NODE_NOT_READY = "node-not-ready"
    CORDONED = "cordoned"
    TAINTED = "tainted"
    LEAVING = "leaving"
    UNSCHEDULED = "unscheduled"
    FORBIDDEN = "forbidden"
    #: Its ReplicaSet cannot create a pod: a ResourceQuota has no room, or a webhook refuses it.
    NOT_CREATED = "not-created"
    # Fleet.
    QUORUM = "quorum"
    UNMET = "unmet"
    #: More workers vanished at once than are removed without a confirmation.
    REMOVAL_BLOCKED = "removal-blocked"
    #: A taint of the template would cut pods off.
    NO_EXECUTE = "no-execute"


class State(StrEnum):
    """The five words a person reads.

    `stable`: no pending changes; `moving`: an operator is at work on it; `waiting`: ends by itself; `blocked`: a person
    must act; `refused`: never, as configured.
    """

    STABLE = "stable"
    MOVING = "moving"
    WAITING = "waiting"
    BLOCKED = "blocked"
    REFUSED = "refused"


#: A person must act before these end.
BLOCKED_REASONS: Final = frozenset(
    {
        Reason.PDB,
        Reason.BARE_POD,
        Reason.EMPTY_DIR,
        Reason.LOCAL_VOLUME,
        Reason.ONE_STORE,
        Reason.LOG_BACKUP,
        Reason.PD_TLS,
        Reason.PD_HALTED,
        Reason.TOO_MANY_REGIONS,
        Reason.NOT_CREATED,
        Reason.MISCONFIGURED,
        Reason.DEFECT,
    }
)
#: These never end, as configured.
REFUSED_REASONS: Final = frozenset({Reason.NEVER_FITS, Reason.FEATURE_OFF, Reason.INVALID})
