"""Local mode: the server in the user's own process, on a database of their own, with a directory as its workspace."""

from toolcrib.local.opening import Local, open_local

__all__ = ["Local", "open_local"]
