"""The versioned workspace: confined file access, change sets, history, search and undo."""
