"""Commands in a sandbox, whose effect on the workspace is a change set like any other."""
