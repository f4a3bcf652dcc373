"""The ``workspace`` toolset: files by absolute path, typed results."""
