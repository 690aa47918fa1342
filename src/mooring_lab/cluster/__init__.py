"""An embedded cluster behind the ports: for playing, rehearsing and testing.

Deterministic from a seed, on virtual time (`clock`), with faults (`faults`) from the first day. The core:

    store       objects with the API server's bookkeeping, copy-on-write, synchronous
    server      the verbs: admission → validation → quota → store, hooks before and after, a log of writes
    api         `SandboxKubeApi`: ports.KubeApi on top of it
    facade      the same over HTTP(S), enough for kubectl

Controllers, scheduler, kubelets, PD and sabakan are beside it and use the store.
"""
