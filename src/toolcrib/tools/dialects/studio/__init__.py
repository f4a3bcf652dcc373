"""The ``studio`` toolset: files in the two zones, results as text with metadata."""
