"""A real control plane on loopback: its programs are found or built, started, and removed again."""
