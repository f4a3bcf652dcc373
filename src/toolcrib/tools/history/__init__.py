"""The ``history`` toolset: versions of a file, deleted files, restore and undo."""
