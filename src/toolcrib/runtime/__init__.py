"""Timers, threads and settings of the process."""
