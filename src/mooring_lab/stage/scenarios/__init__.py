"""What simulations, rehearsals, the demo and tests do to a cluster, and what they see of it."""
