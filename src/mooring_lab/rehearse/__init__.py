"""`mooring rehearse`: a snapshot of a cluster, an event played on it in virtual time, and the verdict.

    capture ──▶ schema (one file) ──▶ load into the sandbox ──▶ play: a whole replica, the event, the observer ──▶
    report

`capture` reads, and never writes. `load` puts the sandbox into the snapshot's state, so that its controllers find
nothing to do. `play` runs the same replica that a cluster runs; nothing here decides anything.
"""
