"""Running commands: verified isolation, copy-on-write views, limits and egress.

Works on directories, not workspaces.
"""
