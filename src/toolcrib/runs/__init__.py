"""Runs: the loop that asks a model, executes what it calls, and asks again, as rows that outlive every process."""
