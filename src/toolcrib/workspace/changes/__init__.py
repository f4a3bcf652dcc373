"""Change sets: draft, commit, preview and undo."""
