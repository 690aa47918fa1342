"""One judge: what must hold, written once, for simulation, rehearsal, demo and tests."""
