"""Mooring decides where machines, pods and data leaders of a cluster belong, and moves them in a safe order.

    observe → decide → queue → act

Everything known about the cluster flows into one `world`; pure capabilities evaluate it and propose operators; one
queue (`core.queue`) lets them pass by cost; one actor (`process.act`) carries released steps out
(docs/architecture.md).
"""

__version__ = "0.3.0"
