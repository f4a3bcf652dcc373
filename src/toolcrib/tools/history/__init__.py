"""The ``history`` toolset: versions of a file, what was deleted, and bringing either back."""
