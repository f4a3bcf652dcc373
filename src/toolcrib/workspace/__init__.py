"""The versioned tree: path languages, the confined disk, history, search and undo. Runs no processes."""
