"""Leader election, and the address of the leader."""
