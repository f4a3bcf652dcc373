"""Running commands: proved isolation, views that copy on write, limits, egress. Knows directories, not workspaces."""
