"""Who leads, and where the leader can be reached."""
