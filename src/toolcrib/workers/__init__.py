"""Processes for work on input that somebody else chose: bounded in time and memory, and killed at the bound."""
