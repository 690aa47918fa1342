"""Mooring's second distribution: clusters to play on, and what is played on them.

    cluster    an embedded cluster on virtual time      control   a real control plane on loopback
    stage      one replica of Mooring on either         simulate, rehearse, demo: a plan each, and a report

Nothing here runs in a cluster: `mooring` never imports it, and finds its commands by entry point.
"""
