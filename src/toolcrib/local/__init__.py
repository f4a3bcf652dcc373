"""Local mode: a server in the user's process, with a private database and a directory as its workspace."""

from toolcrib.local.local_mode import LocalServer, open_history, open_local

__all__ = ["LocalServer", "open_history", "open_local"]
