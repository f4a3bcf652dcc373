"""The ``mounts`` toolset: files by mount, and one shape of result for success and failure alike."""
