"""`mooring rehearse`: a snapshot of a cluster, an event played on it in virtual time, and the verdict.

    take ──▶ form (one file) ──▶ load into the sandbox ──▶ play: a whole replica, the event, the observer ──▶ report

`take` reads, and never writes. `load` makes the sandbox stand as the snapshot says, so that its controllers find
nothing to do. `play` runs the same replica that a cluster runs; nothing here decides anything.
"""
