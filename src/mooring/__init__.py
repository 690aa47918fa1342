"""Mooring says where machines, pods and data leaders of a cluster belong, and moves them gently when they must move.

    observe → decide → queue → act

Everything known about the cluster flows into one `world`; pure deciders look at it and propose operators; one queue
(`traffic`) lets them pass by cost; one actor (`run.act`) carries released steps out. docs/architecture.md draws it.
"""

__version__ = "0.1.0"
