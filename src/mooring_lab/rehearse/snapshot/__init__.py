"""A cluster in one file: taken from an API server, redacted, and loaded into the sandbox."""
