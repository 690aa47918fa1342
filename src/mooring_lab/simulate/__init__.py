"""One simulation of the whole (O5): random clusters, load, interference and faults; promises checked throughout.

plan.py         what a seed means: the shape of the cluster and the actions of the run, as plain data
build.py        the cluster of a shape, on the sandbox
load.py, interference.py, faults.py     what each action does
invariants.py   what must hold at every write and at every second
quiet.py        the end of a run: everything is undone, and nothing may be left pending
coverage.py     what happened, counted: a run that meets nothing shows nothing
simulation.py   one run;  seeds.py  many;  shrink.py  the fewest actions that still fail
"""
