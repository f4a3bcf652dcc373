"""Searching the web by engines that the operator names. Knows nothing of tools, workspaces or who asks."""
