"""Local mode: the server in the user's own process, on a database of their own, with a directory as its workspace."""

from toolcrib.local.local_mode import LocalServer, open_local

__all__ = ["LocalServer", "open_local"]
