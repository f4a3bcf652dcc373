"""Runs: the loop that calls a model, executes its tool calls and calls it again. All state is in rows."""
