"""Searching a workspace: by content, by path, by what a file is. Changes nothing."""
