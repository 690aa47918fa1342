"""How quick and how large the sandbox's PD and TiKV are. Defaults follow PD 8.5 and what was measured on a real one."""

import msgspec


class PdSettings(msgspec.Struct, frozen=True, kw_only=True):
    members: tuple[str, ...] = ("pd-0",)
    version: str = "v8.5.7"
    #: The maintenance lock came with that version.
    lockable: bool = True
    replicas: int = 3
    region_size_mib: int = 96
    capacity_gib: int = 100

    # TiKV: ranges are drawn from the seed.
    transfer_s: tuple[float, float] = (0.05, 0.2)
    conf_change_s: tuple[float, float] = (0.05, 0.2)
    snapshot_mib_per_s: float = 50.0
    #: From a leader change until it is reported to PD.
    report_s: tuple[float, float] = (0.02, 0.3)
    #: TiKV 8.5.5 and later: a process that is told to end waits so long for its leaders to be taken off (20 s by
    #: default); 0: an older one, which ends with them.
    graceful_s: float = 0.0
    #: A PD that is back until a store's stream is, which then reports all of its regions.
    reconnect_s: tuple[float, float] = (1.0, 5.0)
    #: Leaders of a store that stopped until their followers have elected others.
    election_s: tuple[float, float] = (10.0, 20.0)
    store_heartbeat_s: float = 10.0

    # PD.
    disconnected_after_s: float = 20.0
    down_after_s: float = 1800.0
    leader_limit: int = 4
    region_limit: int = 8
    evict_batch: int = 3
    balance_batch: int = 4
    #: balance-leader acts above twice this difference, balance-region too (in regions).
    tolerance: int = 5
    schedule_every_s: float = 0.01
    #: The balancers look at most this often.
    balance_every_s: float = 0.1
    #: The coordinator looks this often whether enough regions have reported to begin; it begins anyway after the other.
    collect_every_s: float = 3.0
    collect_at_most_s: float = 300.0
    collect_share: float = 0.9
    #: The PD leader is killed until another member answers.
    failover_s: float = 12.0
    handover_s: float = 0.5
    record_ttl_s: float = 600.0
    #: A caller's patience: a PD slower than this has not answered.
    timeout_s: float = 5.0
