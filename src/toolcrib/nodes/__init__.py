"""Nodes: which of them is the home of a workspace, and what happens when one dies or drains."""
