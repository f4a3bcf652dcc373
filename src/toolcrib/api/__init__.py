"""The HTTP face: routes, who is asking, and how errors are told. Decides nothing about tools or files."""
