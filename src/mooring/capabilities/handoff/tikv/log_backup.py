"""Log backup (PITR): a restart of TiKV that waits until the backup has caught up (E13).

tidb-operator flushes a log backup before a TiKV pod goes; nobody but TiKV can do that, and Mooring does not ask it.
Where `log-backup-lag-s` is set, a restart that a person asked for waits until the checkpoint is that young. BR keeps
the checkpoint in etcd, behind PD, where Mooring does not look: whoever can read it writes it on the TidbCluster, as a
time or as the TSO that `br log status` prints. Nodes that must be emptied are not kept waiting.
"""

from typing import Final

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.model.decision import Verdict
from mooring.core.model.marks import LOG_BACKUP_CHECKPOINT
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import TidbCluster
from mooring.core.model.times import moment, rfc3339

#: On a TidbCluster: a lagging log backup is accepted.
WITHOUT_FLUSH: Final = "tidb.pingcap.com/tikv-restart-without-flush-log-backup"
#: A TSO is milliseconds, and so many bits that count within one.
TSO_BITS: Final = 18


def checkpoint_of(text: str) -> float | None:
    """RFC 3339, or a TSO; None: neither."""
    if text.isascii() and text.isdecimal() and len(text) < 20:
        return (int(text) >> TSO_BITS) / 1000
    return moment(text)


def log_backup_behind(tc: TidbCluster, policy: HandoffPolicy, now: float) -> Verdict | None:
    """Why a restart may not begin yet; None: nobody asked for that, or the checkpoint is young enough. One that lies in
    the future says nothing about now."""
    if not policy.log_backup_lag_s or WITHOUT_FLUSH in tc.annotations:
        return None
    text = tc.annotations.get(LOG_BACKUP_CHECKPOINT, "")
    at = checkpoint_of(text)
    if at is not None and now - at + policy.log_backup_lag_s >= 0 and now - at < policy.log_backup_lag_s:
        return None
    known = f"is of {rfc3339(at)}" if at is not None and at < now else "is not known"
    detail = f"the checkpoint of the log backup {known}, and must be younger than {policy.log_backup_lag_s:g} s"
    said = f"kubectl -n {tc.namespace} annotate tc {tc.name} --overwrite {LOG_BACKUP_CHECKPOINT}=CHECKPOINT"
    return Verdict(State.BLOCKED, Reason.LOG_BACKUP, detail, f"br log status --json, then: {said}")
