"""One catalogue of events: name → apply(stage, target, draw)."""
