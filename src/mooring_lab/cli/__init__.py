"""The commands of this distribution; `mooring` finds them by the entry points in pyproject.toml."""
