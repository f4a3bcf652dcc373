"""The ``mounts`` toolset: files by mount, with the same result format for success and failure."""
