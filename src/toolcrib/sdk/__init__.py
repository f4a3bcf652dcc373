"""The Python SDK: agents, tools and undo on a directory, without a terminal. The CLI is built on it."""
