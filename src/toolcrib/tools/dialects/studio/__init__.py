"""The ``studio`` toolset: files in @project and @central, results as text with metadata."""
