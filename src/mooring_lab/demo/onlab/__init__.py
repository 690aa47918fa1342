"""The day on the real control plane: etcd, API server, schedulers, controller manager and kwok, on the wall clock.

mirror     what the API server holds, followed by watches; its writes are sent there
fixtures   the mirror, with the sandbox's PD, machine registry, cloud and operator's stand-in beside it
process    `mooring run` as it is, in this process, and what it wrote
stage      all of it behind `demo.stage.Stage`
"""
