"""Searching a workspace: by content, by path and by file properties."""
