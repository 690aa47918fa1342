"""Settings: flags, environment and file, checked, and followed while running."""
