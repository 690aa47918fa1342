"""What can befall a cluster: named on the command line, checked against a snapshot, then done to the sandbox."""
