"""Toolcrib from Python: agents, tools and undo on a directory, without a terminal. The commands are built on it."""
