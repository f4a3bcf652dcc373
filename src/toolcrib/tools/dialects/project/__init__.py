"""The ``project`` toolset: the project's files by relative path, results as text."""
