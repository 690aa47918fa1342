"""Every single failure on one snapshot, ranked."""
