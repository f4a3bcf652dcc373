"""Web search with the engines that the operator configures. Independent of tools and workspaces."""
