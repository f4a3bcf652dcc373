"""Confined access to the disk: open, read, write, trash and gitignore."""
