"""Rehearsals: scenarios on the sandbox, faults, and the harness that kills a replica at every write."""
