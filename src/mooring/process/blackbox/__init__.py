"""The black box: recordings in a ring of files, and a replica that plays one back."""
