"""The API server of the sandbox: objects with their bookkeeping, verbs, watches, admission and faults."""
