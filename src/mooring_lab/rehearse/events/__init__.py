"""Events: named on the command line, checked against a snapshot, then carried out on the sandbox."""
